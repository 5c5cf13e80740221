#!/bin/bash
# Builds a real Kubernetes from the Go module proxy, for tests: one program that is kube-apiserver,
# kube-controller-manager, kube-scheduler, kubelet or kubectl by the name that it is called by, and coredns and pause.
#
#   build.sh DIR    what is in DIR already, of the same version, stays
#
# Environment: V, the version (default 1.35.4), and GOFLAGS (-p=1 leaves other processors free). From nothing it takes
# some 7 minutes on two cores, and 2 GiB of Go's build cache. Debian has the rest:
# apt-get install etcd-server containerd runc containernetworking-plugins
set -eu
V=${V:-1.35.4}
mkdir -p "$1"; out=$(readlink -f "$1")
want="$V $(sha256sum <"$0")"
[ "$(cat "$out/built" 2>/dev/null)" != "$want" ] || exit 0
command -v go >/dev/null || { echo "build.sh: the command go is missing: install Go 1.26 or later" >&2; exit 3; }
src=$(mktemp -d); trap 'rm -rf "$src"' EXIT
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false" GOWORK=off
mkdir "$src/kube" "$src/coredns" "$src/pause"; cd "$src"
printf 'module cluster\n\ngo 1.26\n' >go.mod
mod=$(go mod download -json "k8s.io/kubernetes@v$V" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{ # k8s.io/kubernetes has its own modules at version 0.0.0: those of this release have 0.x.y
  printf 'module cluster\n\ngo 1.26\n\nrequire (\n\tk8s.io/kubernetes v%s\n\tgithub.com/coredns/coredns v1.15.0\n)\n' "$V"
  grep -E '^\s+k8s.io/[a-z-]+ v0.0.0$' "$mod" | sort -u | awk -v m="v0.${V#1.}" '{print "replace " $1 " => " $1 " " m}'
} >go.mod
cat >kube/main.go <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	var cmd *cobra.Command
	switch name := filepath.Base(os.Args[0]); name {
	case "kube-apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		cmd = controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		cmd = scheduler.NewSchedulerCommand()
	case "kubelet":
		cmd = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		cmd = kubectl.NewDefaultKubectlCommand()
	default:
		fmt.Fprintln(os.Stderr, "there is no", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(cmd))
}
END
cat >coredns/main.go <<'END'
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"errors", "kubernetes"}
	coremain.Run()
}
END
cat >pause/main.go <<'END'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}
END
go mod tidy
v=k8s.io/component-base/version
go build -trimpath -ldflags "-s -w -X $v.gitVersion=v$V -X $v.gitMajor=1 -X $v.gitMinor=$(echo "$V" | cut -d. -f2)" -o "$out/" ./kube ./coredns ./pause
for c in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do ln -sf kube "$out/$c"; done
echo "$want" >"$out/built"
