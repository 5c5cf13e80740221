package labtest

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Builder is a topology made in code:
//
//	labtest.Topology().
//		Hosts("a", "b", "c").
//		Switch("s").
//		Link("a", "s", labtest.Rate(10*labtest.Gbit)).
//		Link("b", "s", labtest.Delay(time.Millisecond), labtest.Loss(0.001)).
//		Link("c:storage", "s")
//
// It is checked as a file is, by the same code, when a lab is made of it: what is wrong
// is told with the place of the call that said so. Topology begins one; every method
// returns the same Builder.
type Builder struct {
	top, defaults, nodes, links        []line
	workloads, timeline, chaos, checks []line
	interfaces                         map[string]int // of a node: how many were named by Link
}

// A line is an entry of the topology in a line of YAML, and the call that it comes from.
type line struct {
	text string
	from origin
}

// An origin is a place in a Go file.
type origin struct {
	file string // its last element
	line int
}

// Topology begins a topology.
func Topology() *Builder { return &Builder{interfaces: map[string]int{}} }

// caller is the place of the call of a method of Builder.
func caller() origin {
	_, file, at, ok := runtime.Caller(2)
	if !ok {
		return origin{}
	}
	return origin{filepath.Base(file), at}
}

// Seed sets the seed of all random decisions. Without it one is drawn, and logged.
func (b *Builder) Seed(seed uint64) *Builder {
	b.top = append(b.top, line{fmt.Sprintf("seed: %d", seed), caller()})
	return b
}

// LinkDefaults are settings of all links that say nothing else.
func (b *Builder) LinkDefaults(settings ...Setting) *Builder {
	b.defaults = append(b.defaults, line{"link: " + flow(settings), caller()})
	return b
}

// Host adds a host.
func (b *Builder) Host(name string, settings ...Setting) *Builder {
	b.nodes = append(b.nodes, line{quote(name) + ": " + flow(settings), caller()})
	return b
}

// Hosts adds hosts.
func (b *Builder) Hosts(names ...string) *Builder {
	for _, name := range names {
		b.nodes = append(b.nodes, line{quote(name) + ": {}", caller()})
	}
	return b
}

// Switch adds a switch.
func (b *Builder) Switch(name string, settings ...Setting) *Builder {
	b.nodes = append(b.nodes, line{quote(name) + ": " + flow(settings, Set("kind", "switch")), caller()})
	return b
}

// Router adds a router.
func (b *Builder) Router(name string, settings ...Setting) *Builder {
	b.nodes = append(b.nodes, line{quote(name) + ": " + flow(settings, Set("kind", "router")), caller()})
	return b
}

// Link joins two nodes. An end is node:interface or a node alone, whose interfaces are
// then eth0, eth1 and so on, in the order of the calls.
func (b *Builder) Link(end, other string, settings ...Setting) *Builder {
	ends := Set("endpoints", fmt.Sprintf("[%s, %s]", quote(b.endpoint(end)), quote(b.endpoint(other))))
	b.links = append(b.links, line{"- " + flow(settings, ends), caller()})
	return b
}

// endpoint gives the end of a link an interface, if it has none.
func (b *Builder) endpoint(end string) string {
	if strings.Contains(end, ":") {
		return end
	}
	n := b.interfaces[end]
	b.interfaces[end]++
	return end + ":eth" + strconv.Itoa(n)
}

// Workload adds a workload. Zero fields of w are as if they were absent from a file.
func (b *Builder) Workload(w topology.Workload) *Builder {
	b.workloads = append(b.workloads, line{"- " + flow(workloadSettings(&w)), caller()})
	return b
}

// At adds an entry of the timeline at a time after all nodes are ready:
//
//	At(2*time.Second, labtest.Set("link", "a:eth0"), labtest.Set("set", "{loss: 2%}"))
func (b *Builder) At(at time.Duration, settings ...Setting) *Builder {
	b.timeline = append(b.timeline, line{"- " + flow(settings, Set("at", topology.FormatDuration(at))), caller()})
	return b
}

// Event adds an entry of the timeline that happens when something else has:
//
//	Event(labtest.Set("when", "{workload: bulk, messages: '>= 1000'}"), labtest.Set("kill", "b"))
func (b *Builder) Event(settings ...Setting) *Builder {
	b.timeline = append(b.timeline, line{"- " + flow(settings), caller()})
	return b
}

// Chaos adds random events:
//
//	Chaos(labtest.Set("kind", "down"), labtest.Set("every", "2s"), labtest.Set("for", "200ms"), labtest.Set("until", "20s"))
func (b *Builder) Chaos(settings ...Setting) *Builder {
	b.chaos = append(b.chaos, line{"- " + flow(settings), caller()})
	return b
}

// Check adds a check:
//
//	Check(labtest.Set("workload", "bulk"), labtest.Set("throughput", ">= 200mbit"))
func (b *Builder) Check(settings ...Setting) *Builder {
	b.checks = append(b.checks, line{"- " + flow(settings), caller()})
	return b
}

// String is the topology as a file.
func (b *Builder) String() string {
	text, _ := b.render()
	return text
}

// render is the topology as a file, and where each of its lines comes from.
func (b *Builder) render() (text string, origins []origin) {
	var out strings.Builder
	put := func(l line) {
		out.WriteString(l.text + "\n")
		origins = append(origins, l.from)
	}
	section := func(indent, title string, lines []line) {
		if len(lines) == 0 {
			return
		}
		put(line{text: indent + title + ":"})
		for _, l := range lines {
			put(line{indent + "  " + l.text, l.from})
		}
	}
	for _, l := range b.top {
		put(l)
	}
	put(line{text: "topology:"})
	section("  ", "defaults", b.defaults)
	section("  ", "nodes", b.nodes)
	section("  ", "links", b.links)
	section("", "workloads", b.workloads)
	section("", "timeline", b.timeline)
	section("", "chaos", b.chaos)
	section("", "checks", b.checks)
	return out.String(), origins
}

// flow is a map in one line of YAML, whose first keys are those of first.
func flow(settings []Setting, first ...Setting) string {
	var parts []string
	for _, s := range append(first, settings...) {
		value := s.value
		if !strings.HasPrefix(value, "{") && !strings.HasPrefix(value, "[") {
			value = quote(value)
		}
		parts = append(parts, quote(s.key)+": "+value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// quote is a scalar of YAML that stands in a line whatever is in it: the escapes of Go are
// all among those of YAML (YAML 1.2.2, 5.7).
func quote(text string) string { return strconv.Quote(text) }
