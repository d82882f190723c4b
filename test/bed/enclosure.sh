# The first process of an enclosure, run by /bin/sh in new namespaces for processes, mounts and network.
# $1 the bed's folder for the node, $2 the node's address with its prefix length, $3 a file to make when all is ready.
# Standard input is a pipe: at its end this ends, and with it everything in here.
set -eu

mount -n --make-rprivate / # what is mounted here is seen nowhere else
mount -n -t tmpfs tmpfs /run # first and with -n above: mount keeps notes there
mount -t proc proc /proc
for hidden in /var/lib /var/log; do
  mount -t tmpfs tmpfs "$hidden"
done
for name in lib/kubelet lib/containerd lib/volumes log/pods; do
  mkdir -p "/var/$name" "$1/$name"
  mount --bind "$1/$name" "/var/$name"
done
mount --make-rshared /var/lib/kubelet # node-agent sees the volumes that kubelet mounts after its start

ip link set lo up
ip link add cni0 type bridge
ip address add "$2" dev cni0
ip link set cni0 up
# Nothing is out there, but without a route the addresses of Services would not get as far as kube-proxy's rules.
ip route add default dev cni0
echo 1 >/proc/sys/net/ipv4/ip_forward

: >"$3"
exec 3<&0
cat <&3 >/dev/null &
wait # and meanwhile reap what has lost its parent, as a first process must
