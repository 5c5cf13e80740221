package chaos

import (
	"fmt"
	"strings"
	"time"
)

// A moment is the command under way when a trial's fault strikes.
type moment struct {
	name string
	args func(t *trial) []string // of ndklab
	// up says that the lab is up beforehand.
	up bool
	// owns says that the lab ends with the command, at least while it is made.
	owns bool
	// releases says that a lab that the command owns may live on when it is done.
	releases bool
	// usual is the time for which the command runs if nothing happens to it, or the part of
	// that which is of interest.
	usual time.Duration
}

var moments = []moment{
	{name: "up", args: func(t *trial) []string { return t.withRecord("up", t.file) }, owns: true, releases: true, usual: 250 * time.Millisecond},
	{name: "run", args: func(t *trial) []string { return t.withRecord("run", t.file) }, owns: true, usual: 900 * time.Millisecond},
	{name: "exec", args: func(t *trial) []string {
		return []string{"exec", t.lab + "/a", "--", "sh", "-c", "ipcmk -M 4096 >/dev/null; sleep 60 & sleep 60"}
	}, up: true, usual: 100 * time.Millisecond},
	{name: "capture", args: func(t *trial) []string { return []string{"capture", t.lab + "/a:eth0", "-w", "capture.pcapng"} }, up: true, usual: 150 * time.Millisecond},
	{name: "reconfigure", args: func(t *trial) []string { return t.withRecord("up", t.file, "--reconfigure") }, up: true, owns: true, releases: true, usual: 300 * time.Millisecond},
	{name: "apply", args: func(t *trial) []string { return []string{"apply", t.changed} }, up: true, usual: 150 * time.Millisecond},
	{name: "restart", args: func(t *trial) []string { return []string{"restart", t.lab + "/a"} }, up: true, usual: 100 * time.Millisecond},
	{name: "down", args: func(t *trial) []string { return []string{"down", t.lab} }, up: true, usual: 40 * time.Millisecond},
}

// pingpong is a program that uses libibverbs.
const pingpong = "ibv_rc_pingpong"

// verbsMoment is while such a program and its peer exchange messages in node a, for as long
// as the trial takes.
var verbsMoment = moment{name: "verbs", args: func(t *trial) []string {
	const exchange = pingpong + " -g 0 -n 100000000"
	return []string{"exec", t.lab + "/a", "--", "sh", "-c", exchange + " >/dev/null & until " + exchange + " a >/dev/null 2>&1; do :; done"}
}, up: true, usual: 300 * time.Millisecond}

// A shape adds something to a lab's nodes and plain links.
type shape struct {
	impaired  bool // a link engine
	external  bool // an end outside the lab
	fabric    bool // a switch and a router
	limited   bool // a node with limits
	captures  bool // a recorder
	decisions bool // a log of decisions, of up and run
}

func (s shape) String() string {
	var has []string
	for _, part := range []struct {
		name string
		is   bool
	}{{"impaired", s.impaired}, {"external", s.external}, {"fabric", s.fabric}, {"limited", s.limited}, {"captures", s.captures}, {"decisions", s.decisions}} {
		if part.is {
			has = append(has, part.name)
		}
	}
	if has == nil {
		return "plain"
	}
	return strings.Join(has, "+")
}

// topology is the file of a lab with that shape.
func (s shape) topology(name string) string {
	limits, impairment := "", ""
	if s.limited {
		limits = "cpu: 0.9, memory: 64MiB"
	}
	if s.impaired {
		impairment = ", delay: 1ms, loss: 0.1%"
	}
	nodes := []string{"a: {" + limits + "}", "b: {}"}
	links := []string{`endpoints: ["a:eth0", "b:eth0"], overrun: allow` + impairment}
	if s.fabric {
		nodes = append(nodes, "c: {}", "d: {}", "s: {kind: switch}", "r: {kind: router}")
		links = append(links, `endpoints: ["b:eth1", "s:eth0"]`, `endpoints: ["c:eth0", "s:eth1"]`, `endpoints: ["r:eth0", "s:eth2"]`, `endpoints: ["d:eth0", "r:eth1"]`)
	}
	if s.external {
		links = append(links, `endpoints: ["a:eth9", "external:out"], overrun: allow`)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nseed: 1\ntopology:\n  nodes:\n", name)
	for _, n := range nodes {
		fmt.Fprintf(&b, "    %s\n", n)
	}
	b.WriteString("  links:\n")
	for _, l := range links {
		fmt.Fprintf(&b, "    - {%s}\n", l)
	}
	b.WriteString("workloads:\n  - {name: w, from: a, to: b, operation: write, size: 4KiB, duration: 500ms, verify: true}\n")
	if s.captures {
		b.WriteString("capture:\n  - {link: \"a:eth0\", file: wire.pcapng}\n")
	}
	return b.String()
}

// withRecord adds --record, if the trial's shape has that.
func (t *trial) withRecord(args ...string) []string {
	if t.shape.decisions {
		args = append(args, "--record", "decisions.log")
	}
	return args
}
