#!/usr/bin/env bash
# Installs what a test bed with a real node takes from Debian. See --help.
set -euo pipefail

# COMMAND:PACKAGE, or FILE:PACKAGE.
readonly needed=(
  containerd:containerd
  runc:runc
  /usr/lib/cni/bridge:containernetworking-plugins
  nft:nftables
  ip:iproute2
  busybox:busybox-static
)

usage() {
  cat <<'HELP'
usage: scripts/node-packages.sh [--help]

Installs, with apt-get and as root, the Debian (or Ubuntu) packages that a test bed with a real node needs, unless they
are there:

  containerd, runc              run containers
  containernetworking-plugins   give pods their network
  nftables                      what kube-proxy makes Services with
  iproute2                      makes the network of the node
  busybox-static                what the containers of tests consist of

The bed runs programs of these packages by itself, in namespaces of its own. It uses no service that they bring and
changes nothing of one, so a containerd or docker that runs on the machine is left alone. A second run installs nothing.
HELP
}

case "${1-}" in
  "") ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=()
for entry in "${needed[@]}"; do
  what=${entry%%:*}
  [[ -e $what ]] || command -v "$what" >/dev/null || missing+=("${entry##*:}")
done
if ((${#missing[@]} == 0)); then
  echo "all packages for a real node are there"
  exit 0
fi
command -v apt-get >/dev/null || fail "there is no apt-get here, install by hand: ${missing[*]}"
((EUID == 0)) || fail "run as root to install: ${missing[*]}"
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt_options=(-q -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o DPkg::Lock::Timeout=300)
apt-get "${apt_options[@]}" update
apt-get "${apt_options[@]}" install -y --no-install-recommends "${missing[@]}"
