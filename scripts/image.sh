#!/usr/bin/env bash
# Builds the container image from what `make dist` has built. See --help.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: scripts/image.sh [--save FILE] IMAGE ARCH...

Builds IMAGE-ARCH from dist/linux-ARCH for each ARCH, with docker, podman or buildah: the first of them that works here,
or the one in ENGINE. VERSION and COMMIT are noted in its labels. `make image` calls it.

podman and buildah also make IMAGE, a manifest list of them. docker can do so only in a registry; IMAGE is then the image
for this machine's architecture, if that is among them.

  --save FILE   also write the image of the first ARCH, as IMAGE, into a docker-archive FILE
HELP
}

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

save=
case "${1-}" in
  -h | --help) usage; exit 0 ;;
  --save) save=${2-}; shift 2 || { usage >&2; exit 2; } ;;
esac
(($# >= 2)) || { usage >&2; exit 2; }
image=$1
shift

cd "$(dirname "${BASH_SOURCE[0]}")/.."

engine=${ENGINE-}
for candidate in docker podman buildah; do
  [[ -z $engine ]] || break
  ! "$candidate" info >/dev/null 2>&1 || engine=$candidate
done
[[ -n $engine ]] || fail "an image is built with docker, podman or buildah, and none of them runs here"

for arch; do
  [[ -e dist/linux-$arch ]] || fail "dist/linux-$arch is not there: run \`make dist ARCHES=$arch\`"
  echo "== $image-$arch with $engine"
  # TARGETARCH is passed because not every engine sets it by itself.
  "$engine" build --platform "linux/$arch" --build-arg "TARGETARCH=$arch" \
    --build-arg "VERSION=${VERSION:-devel}" --build-arg "COMMIT=${COMMIT:-unknown}" -t "$image-$arch" -f Dockerfile .
done

case $engine in
  docker)
    native=$(docker version --format '{{.Server.Arch}}')
    for arch; do
      [[ $arch != "$native" ]] || docker tag "$image-$arch" "$image"
    done
    ;;
  *)
    "$engine" manifest rm "$image" >/dev/null 2>&1 || "$engine" rmi "$image" >/dev/null 2>&1 || true # of an earlier run
    "$engine" manifest create "$image" >/dev/null
    for arch; do
      "$engine" manifest add "$image" "$image-$arch" >/dev/null
    done
    ;;
esac

[[ -n $save ]] || exit 0
rm -f "$save"
case $engine in
  buildah) buildah push --quiet "$image-$1" "docker-archive:$save:$image" ;;
  *)
    # An archive holds the name that the image has here.
    [[ $engine != podman ]] || podman manifest rm "$image" >/dev/null
    "$engine" tag "$image-$1" "$image"
    "$engine" save -o "$save" "$image"
    ;;
esac
