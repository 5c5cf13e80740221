package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// This file tests whole files with a timeline: what happens, in which order, and when exactly.

// play runs a file in virtual time, and returns its report, and what was told of some kinds, with the time.
func play(t *testing.T, file string, kinds ...string) (*report.Run, []string) {
	t.Helper()
	var told []string
	r, err := Run(t.Context(), parsed(t, file), Options{Events: func(e event.Event) {
		for _, kind := range kinds {
			if e.Kind == kind {
				told = append(told, e.At.String()+" "+e.Text)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r, told
}

func wantTold(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// clientAndServer is a link with settings, and the rest of a file.
func clientAndServer(settings, rest string) string {
	return `
topology:
  nodes: {client: , server: }
  links:
    - {endpoints: ["client:eth0", "server:eth0"], ` + settings + "}\n" + rest
}

// Each kind of event changes the link while a workload runs. A report has the mean of the settings that packets met.
func TestTimeline(t *testing.T) {
	r, told := play(t, clientAndServer("delay: 1ms", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 400ms}
timeline:
  - {at: 50ms, link: "client:eth0", set: {loss: 5%, delay: 2ms}}
  - {at: 100ms, link: "server:eth0", from: server, set: {loss: 0%}}
  - {at: 150ms, link: "client:eth0", down: true}
  - {at: 200ms, link: "client:eth0", up: true}
  - {at: 300ms, link: "client:eth0", reset: true}
`), event.LinkChanged)
	wantTold(t, told, "50ms link client:eth0: delay 2ms, loss 5%", "100ms link client:eth0: loss 0% from server", "150ms link client:eth0 is down", "200ms link client:eth0 is up",
		"300ms link client:eth0: reset")
	if w := r.Workloads[0]; w.Errors != 0 || w.Messages == 0 || !r.Passed {
		t.Errorf("an outage of 50 ms broke the workload: %+v", w)
	}
	there, back := r.Links[0].Directions[0], r.Links[0].Directions[1]
	if loss := there.Asked.Loss; loss == nil || *loss <= 0 || *loss >= 0.05 {
		t.Errorf("asked loss is no mean of 0 and 5 %%: %v", loss)
	}
	if loss := back.Asked.Loss; loss == nil || *loss >= *there.Asked.Loss {
		t.Errorf("asked loss of the direction that was healed: %v", loss)
	}
	if delay := there.Achieved.DelayUS; delay == nil || *delay < 1000 || *delay > 2100 {
		t.Errorf("achieved delay: %+v, asked %v us", there.Achieved, *there.Asked.DelayUS)
	}
}

// Partitions give way to each other, each at its time, and leave alone what else is asked of links.
func TestTimelineOfPartitions(t *testing.T) {
	r, told := play(t, `
topology:
  nodes: {sw: {kind: switch}, a: , b: , c: }
  links:
    - {endpoints: ["sw:p0", "a:eth0"], delay: 1ms}
    - {endpoints: ["sw:p1", "b:eth0"]}
    - {endpoints: ["sw:p2", "c:eth0"], delay: 1m}
workloads:
  - {name: w, from: a, to: b, operation: write, size: 4KiB, count: 200, verify: true, start: 200ms}
timeline:
  - {at: 20ms, link: "c:eth0", set: {delay: 0ms}}
  - {at: 40ms, link: "a:eth0", set: {delay: 2ms}}
  - {at: 60ms, partition: [[a], [b]]}
  - {at: 80ms, partition: [[b]]}
  - {at: 100ms, heal: true}
  - {at: 120ms, link: "a:eth0", reset: true}
  - {at: 140ms, heal: true}
`, event.LinkChanged)
	wantTold(t, told, "20ms link sw:p2: delay 0ms", "40ms link sw:p0: delay 2ms",
		"60ms partition a b: links that are down: 2", "80ms partition b: links that are down: 1", "100ms the partition is over: links that are up again: 1",
		"120ms link sw:p0: reset", "140ms the partition is over: links that are up again: 0")
	if w := r.Workloads[0]; !r.Passed || !w.Verified || w.Messages != 200 {
		t.Errorf("%q, %+v", r.Problems, w)
	}
	for i, want := range []string{"delay=1ms", "", ""} {
		if k := r.Links[i]; k.State != "up" || strings.Join(k.Directions[0].Settings, " ") != want {
			t.Errorf("link %d is %s, %q", i, k.State, k.Directions[0].Settings)
		}
	}
}

// A timeline's change to a link whose node is down is a problem of the run, and what comes after it happens.
func TestTimelineOfALinkThatIsGone(t *testing.T) {
	r, _ := play(t, `
topology:
  nodes: {a: , b: , c: }
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
    - {endpoints: ["b:eth1", "c:eth0"]}
    - {endpoints: ["c:eth1", "a:eth1"]}
timeline:
  - {at: 1ms, stop: c}
  - {at: 2ms, link: "b:eth1", set: {delay: 1ms}}
  - {at: 3ms, link: "c:eth1", down: true}
  - {at: 4ms, link: "a:eth0", set: {delay: 2ms}}
`)
	want := []string{"timeline at 2ms: link b:eth1: node c is down: it was stopped (test.ndklab.yaml:10:5)",
		"timeline at 3ms: link c:eth1: node c is down: it was stopped (test.ndklab.yaml:11:5)"}
	if diff := cmp.Diff(want, r.Problems); diff != "" || r.Passed {
		t.Errorf("passed %v, problems (-want +got):\n%s", r.Passed, diff)
	}
	if got := r.Links[0].Directions[0].Settings; len(got) != 1 || got[0] != "delay=2ms" {
		t.Errorf("what came after: %q", got)
	}
}

// Faults are done to just those packets of a workload that they choose, and the transfer is right all the same.
func TestFaultsOfAWorkload(t *testing.T) {
	r, _ := play(t, clientAndServer(`
       faults: [
         {match: {cm: REQ, nth: 1}, action: drop, from: client},
         {match: {opcode: write, nth: 10}, action: drop, from: client},
         {match: {opcode: write, nth: [20, 21]}, action: corrupt, from: client},
         {match: {opcode: write, nth: 30}, action: duplicate, from: client},
         {match: {opcode: write, nth: 40}, action: delay, delay: 5ms, from: client},
         {match: {opcode: ack, nth: 3}, action: drop, from: server}]`, `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 4, count: 50, verify: true}
`))
	if w := r.Workloads[0]; !w.Verified || w.Errors != 0 || w.Messages != 50 {
		t.Errorf("%+v", w)
	}
	for d, want := range []report.Direction{
		{LostBy: report.LostBy{Fault: 2}, Faulted: 6, Corrupted: 2, Duplicated: 1},
		{LostBy: report.LostBy{Fault: 1}, Faulted: 1},
	} {
		m := r.Links[0].Directions[d]
		got := report.Direction{LostBy: m.LostBy, Faulted: m.Faulted, Corrupted: m.Corrupted, Duplicated: m.Duplicated}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("direction %d (-want +got):\n%s", d, diff)
		}
	}
	if refused := r.Nodes[1].Transport["icrc_errors"]; refused != 2 {
		t.Errorf("the server refused %d packets, want the 2 that were corrupted", refused)
	}
}

// Every packet whose bits flip on the way is refused by the receiver's ICRC, and the transfers are right.
func TestCorruptedPacketsAreRefused(t *testing.T) {
	r, _ := play(t, clientAndServer("corrupt: {probability: 3%, bits: 3}", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 8, count: 100, verify: true}
  - {name: r, from: client, to: server, operation: read, size: 64KiB, depth: 8, count: 100, verify: true}
`))
	for _, w := range r.Workloads {
		if !w.Verified || w.Errors != 0 || w.Messages != 100 {
			t.Errorf("%+v", w)
		}
	}
	for d, receiver := range []report.Node{r.Nodes[1], r.Nodes[0]} {
		if refused, corrupted := receiver.Transport["icrc_errors"], r.Links[0].Directions[d].Corrupted; corrupted < 5 || refused != corrupted {
			t.Errorf("%s refused %d of %d packets that were corrupted", receiver.Name, refused, corrupted)
		}
	}
}

// A workload whose client or server is restarted ends with the reason, and a later one is as the first should have been.
func TestRestartInRun(t *testing.T) {
	for victim, name := range []string{"client", "server"} {
		r, told := play(t, clientAndServer("delay: 100us", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 4KiB, duration: 10m, verify: true}
  - {name: later, from: client, to: server, operation: write, size: 4KiB, count: 1000, verify: true, start: 20s}
timeline:
  - {at: 1s, restart: `+name+`}
`), event.NodeDown, event.NodeUp)
		wantTold(t, told, "1s node "+name+" is down: it was stopped", "1s node "+name+" is up again")
		if w := r.Workloads[0]; r.Passed || w.Errors == 0 || w.Error == "" || w.Verified {
			t.Errorf("restart of the %s: passed %v, %+v", name, r.Passed, w)
		}
		if w := r.Workloads[1]; w.Errors != 0 || !w.Verified || w.Messages != 1000 {
			t.Errorf("restart of the %s: %+v", name, w)
		}
		if n := r.Nodes[victim]; n.Restarts != 1 || n.State != "ready" || r.Nodes[1-victim].Restarts != 0 {
			t.Errorf("%+v", n)
		}
		if r.Seconds > 30 {
			t.Errorf("restart of the %s: it took %v s to notice", name, r.Seconds)
		}
	}
}

// Events behind conditions and behind each other happen in that order, in a run of several workloads with checks.
func TestScenario(t *testing.T) {
	r, told := play(t, `
topology:
  nodes: {sw: {kind: switch}, h0: , h1: , h2: }
  links:
    - {endpoints: ["sw:p0", "h0:eth0"], rate: 1gbit}
    - {endpoints: ["sw:p1", "h1:eth0"], rate: 1gbit}
    - {endpoints: ["sw:p2", "h2:eth0"], rate: 1gbit}
workloads:
  - {name: in, operation: write, pattern: incast, nodes: [h0, h1, h2], to: h0, size: 4KiB, depth: 4, duration: 500ms, verify: true}
  - {name: manual, operation: send, from: h0, to: h1, size: 64B, count: 20, start: manual}
timeline:
  - {name: slow, when: {counter: RDMAOutOctets, node: h1, value: ">= 1"}, link: "sw:p0", set: {delay: 1ms}}
  - {after: slow, wait: 100ms, link: "sw:p0", reset: true}
  - {when: {workload: in, state: done}, start: manual}
  - {name: kept, when: {workload: manual, state: done}, snapshot: kept}
  - {name: marked, after: kept, mark: restarting h2}
  - {after: marked, restart: h2}
checks:
  - {workload: in, verified: true, fairness: ">= 0.9"}
  - {workload: manual, messages: 20}
  - {counter: Accept, snapshot: kept, value: 3}
  - {counter: Accept, node: h2, value: 0}
  - {counter: Connect, at: 50ms, value: "<= 2"}
  - {link: "sw:p0", dropped: 0}
`, event.LinkChanged, event.WorkloadDone, event.NodeDown, event.NodeUp)
	if len(r.Problems) > 0 {
		t.Errorf("problems: %s", strings.Join(r.Problems, "; "))
	}
	for i, c := range r.Checks {
		if !c.Passed {
			t.Errorf("check %d: %+v", i, c)
		}
	}
	var order []string
	for _, text := range told {
		_, text, _ = strings.Cut(text, " ")
		text, _, _ = strings.Cut(text, ":")
		order = append(order, text)
	}
	want := []string{"link sw", "link sw", "workload in done", "workload manual done", "node h2 is down", "node h2 is up again"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s\n%q", diff, told)
	}
	if in := r.Workloads[0]; len(in.Flows) != 2 || in.Flows[0].Messages == 0 || in.Messages != in.Flows[0].Messages+in.Flows[1].Messages {
		t.Errorf("incast %+v", in)
	}
}

// All hosts of a ring exchange messages with the next at the same time; nothing fails because there are many.
func TestAllExchange(t *testing.T) {
	const nodes = 200
	for _, delay := range []string{"0us", "100us"} {
		var file strings.Builder
		file.WriteString("topology:\n  nodes:\n")
		for i := range nodes {
			fmt.Fprintf(&file, "    n%d:\n", i)
		}
		file.WriteString("  links:\n")
		for i := range nodes {
			fmt.Fprintf(&file, "    - {endpoints: [\"n%d:eth0\", \"n%d:eth1\"], delay: %s}\n", i, (i+1)%nodes, delay)
		}
		file.WriteString("workloads:\n")
		for i := range nodes {
			fmt.Fprintf(&file, "  - {name: w%d, from: n%d, to: n%d, operation: send, size: 4KiB, count: 5, verify: true}\n", i, i, (i+1)%nodes)
		}
		r, _ := play(t, file.String())
		for _, w := range r.Workloads {
			if !w.Verified || w.Messages != 5 || w.Errors != 0 {
				t.Errorf("%s: messages: %d, verified: %t, errors: %d %s", w.Name, w.Messages, w.Verified, w.Errors, w.Error)
			}
		}
		if len(r.Workloads) != nodes || len(r.Nodes) != nodes || len(r.Links) != nodes || !r.Passed {
			t.Errorf("workloads: %d, nodes: %d, links: %d, want %d of each", len(r.Workloads), len(r.Nodes), len(r.Links), nodes)
		}
	}
}
