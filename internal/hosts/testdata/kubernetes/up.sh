#!/bin/bash
# A real Kubernetes on the hosts of ../slurm/up.sh, which are up: etcd, the control plane and DNS on ctl, a kubelet with
# containerd on each host. The down.sh there ends it, too. As root.
#
#   up.sh BIN [IMAGE=FILE...]   BIN is what build.sh made; an image is one static program: ndklab=/x/ndklab is
#                               ndklab:test, /bin/ndklab
#   DIR/kubectl get nodes
#
# Environment: DIR, that of ../slurm/up.sh, whose SHARE has BIN if that is below /tmp. Pods have addresses of
# 10.77.HOST.0/24. There is no kube-proxy: names of headless services alone, which DNS knows. What a host's kubelet and
# containerd write is in its own /run, /var and DIR.
# Debian: apt-get install etcd-server containerd runc containernetworking-plugins iproute2 openssl
set -eu
B=$(readlink -f "$1"); shift
DIR=$(readlink -f "$DIR") on=$DIR/on K=$DIR/k8s
for c in etcd containerd ctr runc openssl; do
  command -v $c >/dev/null || { echo "up.sh: $c is missing: apt-get install etcd-server containerd runc containernetworking-plugins openssl" >&2; exit 3; }
done
[ -x "$B/kubelet" ] || { echo "up.sh: $B has no kubelet: build.sh $B" >&2; exit 3; }
NET=$(sed -n 's/SlurmctldHost=ctl(\(.*\).254)/\1/p' "$DIR/slurm.conf")
hosts=$(sed -n 's/^NodeName=\(host[0-9]*\) .*/\1/p' "$DIR/slurm.conf")
mkdir -p "$K/images"; cd "$K"

image() { # image NAME FILE: an archive as `docker save` writes it, of one layer
  local d; d=$(mktemp -d -p "$K")
  mkdir -p "$d/root/bin" "$d/root/proc" "$d/root/sys" "$d/root/dev" "$d/root/run" "$d/root/etc" "$d/root/tmp"
  cp "$2" "$d/root/bin/$1"; echo '127.0.0.1 localhost' >"$d/root/etc/hosts"; echo 'root:x:0:0::/:' >"$d/root/etc/passwd"
  tar -C "$d/root" --owner=0 --group=0 -cf "$d/layer.tar" .
  printf '{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/%s"], "Env": ["PATH=/bin"]}, "history": [{}], "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
    "$1" "$(sha256sum <"$d/layer.tar" | cut -d' ' -f1)" >"$d/config.json"
  printf '[{"Config": "config.json", "RepoTags": ["docker.io/library/%s:test"], "Layers": ["layer.tar"]}]' "$1" >"$d/manifest.json"
  tar -C "$d" -cf "images/$1.tar" config.json layer.tar manifest.json
  rm -rf "$d"
}
image pause "$B/pause"; for i in "$@"; do image "${i%%=*}" "${i#*=}"; done

openssl genrsa -out sa.key 2048 2>/dev/null
token=$(openssl rand -hex 16); echo "$token,admin,admin,system:masters" >tokens.csv
cat >kubeconfig <<END
{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: "https://$NET.254:6443", insecure-skip-tls-verify: true}}],
 users: [{name: u, user: {token: "$token"}}], contexts: [{name: x, context: {cluster: c, user: u}}]}
END
printf '#!/bin/bash\nexec "%s" ctl "%s/kubectl" --cache-dir="%s/cache" --kubeconfig "%s/kubeconfig" "$@"\n' "$on" "$B" "$K" "$K" >"$DIR/kubectl"; chmod +x "$DIR/kubectl"
printf '.:53 {\n  errors\n  kubernetes cluster.local {\n    kubeconfig %s/kubeconfig\n  }\n}\n' "$K" >Corefile
run() { local h=$1 l=$2; shift 2; setsid "$on" "$h" "$@" </dev/null >"$K/$l.log" 2>&1 & }
run ctl etcd etcd --data-dir "$K/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
run ctl apiserver "$B/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --cert-dir="$K/certs" --service-account-issuer=https://lab --service-account-key-file=sa.key \
  --service-account-signing-key-file=sa.key --service-cluster-ip-range=10.96.0.0/16 --token-auth-file=tokens.csv --authorization-mode=RBAC --bind-address="$NET.254" \
  --advertise-address="$NET.254" --allow-privileged=true --kubelet-preferred-address-types=InternalIP
for _ in $(seq 300); do "$DIR/kubectl" get --raw /readyz >/dev/null 2>&1 && break; sleep 0.2; done
run ctl controllers "$B/kube-controller-manager" --kubeconfig kubeconfig --service-account-private-key-file sa.key --bind-address 127.0.0.1 --flex-volume-plugin-dir "$K/volumes"
run ctl scheduler "$B/kube-scheduler" --kubeconfig kubeconfig --bind-address 127.0.0.1
run ctl dns "$B/coredns" -conf Corefile
for h in $hosts; do
  n=${h#host}; mkdir -p "$h/cni"
  cat >"$h/containerd.toml" <<END
version = 2
root = "$K/$h/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:test"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$K/$h/cni"
END
  cat >"$h/cni/10.conflist" <<END
{"cniVersion": "0.4.0", "name": "n", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni", "subnet": "10.77.$n.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
  cat >"$h/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock"
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
evictionHard: {}
address: $NET.$n
clusterDNS: [$NET.254]
clusterDomain: cluster.local
podLogsDir: $K/$h/logs
volumePluginDir: $K/$h/volumes
syncFrequency: 1s
nodeStatusUpdateFrequency: 2s
END
  for o in $hosts; do [ "$o" = "$h" ] || "$on" "$h" ip route add "10.77.${o#host}.0/24" via "$NET.${o#host}"; done
  "$on" ctl ip route add "10.77.$n.0/24" via "$NET.$n"
  "$on" "$h" sh -c 'mount --make-shared /; for d in /var/log /var/lib /opt; do mount -t tmpfs own $d; done; echo 1 >/proc/sys/net/ipv4/ip_forward'
  run "$h" "$h-containerd" containerd -c "$K/$h/containerd.toml"
  for _ in $(seq 100); do "$on" "$h" ctr version >/dev/null 2>&1 && break; sleep 0.1; done
  for i in images/*.tar; do "$on" "$h" ctr -n k8s.io images import "$K/$i" >/dev/null; done
  run "$h" "$h-kubelet" "$B/kubelet" --config "$K/$h/kubelet.yaml" --kubeconfig kubeconfig --root-dir "$K/$h/kubelet" --cert-dir "$K/$h/pki" --hostname-override "$h" --node-ip "$NET.$n"
done
for _ in $(seq 600); do
  [ "$("$DIR/kubectl" get nodes --no-headers 2>/dev/null | grep -c ' Ready ')" = "$(echo "$hosts" | wc -w)" ] && { "$DIR/kubectl" get nodes; exit 0; }
  sleep 0.2
done
echo "up.sh: Kubernetes is not ready; its logs are in $K" >&2; exit 1
