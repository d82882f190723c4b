#!/usr/bin/env bash
#
# Finishes a restore from outside the cluster: runs `post-restore` of velero-plugin-for-openshift-dr in Velero's pod, with
# the restore and the options given, and ends with its exit code. It decides nothing itself.
#
# Runs in bash 3.2, which macOS has: no arrays here, because an empty one is an unbound variable to its `set -u`.

set -euo pipefail

namespace=${OADP_NAMESPACE:-openshift-adp}
plugin=/plugins/velero-plugin-for-openshift-dr

usage() {
  printf '%s\n' \
    'Finish a restore: bring its DeploymentConfigs back once their data is in and their hooks have run.' \
    '' \
    'Usage:' \
    '  dc-post-restore.sh RESTORE [options]' \
    '' \
    'Examples:' \
    '  dc-post-restore.sh my-restore --dry-run' \
    '  OADP_NAMESPACE=velero dc-post-restore.sh my-restore -n shop --timeout 20m' \
    '' \
    'It runs post-restore of the plugin in the deployment velero, with oc if there is one, else with kubectl, in the' \
    'cluster that the client is logged in to. The options are those of post-restore; to read about them:' \
    '  dc-post-restore.sh RESTORE --help' \
    '' \
    'Environment:' \
    '  OADP_NAMESPACE  the namespace that Velero runs in (default openshift-adp)' \
    '' \
    'Exit codes:' \
    '  0  done, or nothing to do' \
    '  1  failed' \
    '  2  wrong usage' \
    '  3  not finished: run it again later'
}

# fail CODE MESSAGE...
fail() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

case ${1-} in
  '')
    usage >&2
    fail 2 'name the restore'
    ;;
  -h | --help)
    usage
    exit 0
    ;;
esac

if command -v oc >/dev/null; then
  client=oc
elif command -v kubectl >/dev/null; then
  client=kubectl
else
  fail 1 'neither oc nor kubectl is in the PATH: install one of them and log in to the cluster'
fi

if ! said=$("$client" -n "$namespace" get deployment velero -o name 2>&1); then
  fail 1 "no deployment velero in namespace $namespace: say where Velero runs with OADP_NAMESPACE. $client says: $said"
fi

# Velero's image may hold nothing but Velero, so there is no `test -x` to ask with: the plugin itself answers.
if ! said=$("$client" -n "$namespace" exec deploy/velero -c velero -- "$plugin" version 2>&1); then
  fail 1 "cannot run $plugin in the deployment velero of namespace $namespace: is the plugin installed (velero plugin add), and is the pod up? $client says: $said"
fi

set -- deploy/velero -c velero -- "$plugin" post-restore "$@"
# On a terminal, and only when all three are one: without stdin the client allocates none, and with one stdout and stderr
# become a single stream. It brings progress that is drawn over, and Ctrl-C to the command in the pod.
if [ -t 0 ] && [ -t 1 ] && [ -t 2 ]; then
  set -- -i -t "$@"
fi
exec "$client" -n "$namespace" exec "$@"
