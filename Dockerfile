# The image that `velero plugin add` and OADP's customPlugins take. Velero runs it as an init container that puts the
# plugin into the volume mounted at /target; the plugin itself then runs in Velero's own container. So the image holds one
# file, no shell, no system and no certificates.
#
# `make image` builds that file for each architecture first, and then only puts it here: no image has to be pulled for
# that, none runs (so nothing is emulated), and docker, podman and buildah do the same.

FROM scratch
ARG TARGETARCH
ARG VERSION=devel
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="velero-plugin-for-openshift-dr" \
      org.opencontainers.image.description="Velero plugin that brings OpenShift applications back after a disaster" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY dist/linux-${TARGETARCH}/velero-plugin-for-openshift-dr /velero-plugin-for-openshift-dr
USER 65532:65532
ENTRYPOINT ["/velero-plugin-for-openshift-dr", "install", "/target"]
