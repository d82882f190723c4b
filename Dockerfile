# The image that `velero plugin add` and OADP's customPlugins take. Velero runs it as an init container that puts the
# plugin into the volume mounted at /target; the plugin itself then runs in Velero's own container. So the image holds one
# file, no shell, no system and no certificates.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY Makefile main.go ./
COPY pkg pkg
COPY velero-plugins velero-plugins
ARG TARGETOS TARGETARCH
ARG VERSION=devel
ARG COMMIT=unknown
ENV GOCACHE=/go/build
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION="$VERSION" COMMIT="$COMMIT"

FROM scratch
ARG VERSION=devel
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="velero-plugin-for-openshift-dr" \
      org.opencontainers.image.description="Velero plugin that brings OpenShift applications back after a disaster" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /src/bin/velero-plugin-for-openshift-dr /velero-plugin-for-openshift-dr
USER 65532:65532
ENTRYPOINT ["/velero-plugin-for-openshift-dr", "install", "/target"]
