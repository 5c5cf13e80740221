package core

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

var (
	seeds = flag.Int("seeds", 150, "how many random lives of labs are tried")
	first = flag.Uint64("first", 1, "the seed of the first")
)

// TestSeeds has labs live through whatever may happen to them: commands by many at once, changed files, agents that die at
// any time, actions that fail, callers that go away. When nothing is under way any more, wanted and found are the same,
// every command was answered once, and nothing is left of what has gone.
func TestSeeds(t *testing.T) {
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			live(t, seed)
			if t.Failed() {
				t.Logf("again: make sim SEEDS=1 FIRST=%d", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// live is one life of a lab.
func live(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, randomTopology(r))
	w.rand = rand.New(rand.NewPCG(seed, 1))
	w.answer(w.ask(ByHand, Build{}))
	faults := rand.New(rand.NewPCG(seed, 2))
	w.fail = func(a Action) *Done {
		if faults.IntN(60) != 0 {
			return nil
		}
		switch a.(type) {
		case StartAgent, Configure, Reconfigure, PlaceFiles, PauseAgent, ResumeAgent, MakeEnds, ResizeLink, Impair, SetImpairment, Connect, Disconnect, AwaitSpanningTree, MakeSwitch:
			return &Done{Err: errors.New("a fault")}
		case Execute:
			return &Done{Status: 1}
		case ReleaseLink:
			return &Done{Late: true}
		}
		return nil
	}
	w.healthy = func(string) string {
		if faults.IntN(4) == 0 {
			return "ill"
		}
		return ""
	}
	last := randomTopology(r)
	for range 5 + r.IntN(60) {
		w.act(r)
		for range r.IntN(12) {
			w.step()
		}
	}
	w.fail = nil
	w.settle()
	w.judge()
	// An Apply does what is left, and starts bring up what is down.
	for try := 0; ; try++ {
		a := w.answer(w.ask(ByHand, w.applied(last)))
		if a.Err == nil {
			break
		}
		if try == 3 {
			t.Fatalf("the last Apply: %v", a.Err)
		}
		w.settle()
	}
	for _, n := range w.lab.nodes {
		w.ask(ByHand, ChangeNode{Node: n.spec.Name, Action: topology.RestartNode})
	}
	for _, b := range w.lab.switches {
		w.ask(ByHand, ChangeNode{Node: b.spec.Name, Action: topology.RestartNode})
	}
	for i := range w.lab.links {
		w.ask(ByHand, SwitchLink{Link: i, Up: true})
	}
	w.settle()
	w.judge()
	for _, k := range w.lab.links {
		if k.stuck != nil {
			w.wrong("%s is stuck: %v", linkTo(k.spec), k.stuck)
		}
	}
	for _, n := range w.lab.nodes {
		if n.down() {
			w.wrong("node %s stays down: %s", n.spec.Name, n.reason)
		}
	}
	for _, b := range w.lab.switches {
		if !b.forwards() {
			w.wrong("switch %s stays %s", b.spec.Name, b.status().State)
		}
	}
}

// settle runs the world until nothing is under way but what goes on for ever.
func (w *world) settle() {
	for range 3 {
		for _, n := range w.lab.nodes {
			if n.paused { // so that nobody waits for it for ever
				w.ask(ByHand, ChangeNode{Node: n.spec.Name, Action: topology.ResumeNode})
			}
		}
		w.run(2 * time.Minute) // longer than any node waits to be started again
		if w.lab.Standing().Running {
			w.handle(Ask{0, ByHand, EndRun{}})
		}
	}
	for len(w.busy) > 0 || w.parallel > 0 {
		w.step()
	}
}

// act has something happen to the lab.
func (w *world) act(r *rand.Rand) {
	if len(w.lab.nodes) == 0 || len(w.lab.links) == 0 {
		return
	}
	by := Source(r.IntN(2))
	node := w.lab.nodes[r.IntN(len(w.lab.nodes))].spec.Name
	index := r.IntN(len(w.lab.links))
	k := w.lab.links[index]
	from := ""
	if r.IntN(2) == 0 {
		from = k.spec.Endpoints[r.IntN(2)].Node
	}
	switch r.IntN(12) {
	case 0, 1, 2:
		actions := []topology.NodeAction{topology.StopNode, topology.StartNode, topology.RestartNode, topology.KillNode, topology.PauseNode, topology.ResumeNode}
		if switches := w.lab.switches; len(switches) > 0 && r.IntN(4) == 0 {
			node = switches[r.IntN(len(switches))].spec.Name
		}
		w.ask(by, ChangeNode{node, actions[r.IntN(len(actions))], Kill})
	case 3, 4:
		set, err := topology.ParseChange(nil, []string{[]string{"loss=1%", "delay=1ms", "rate=1gbit", "loss=0%", "delay=0ms"}[r.IntN(5)]})
		if err != nil {
			w.t.Fatal(err)
		}
		w.ask(by, SetLink{index, from, set})
	case 5:
		w.ask(by, ResetLink{index, from})
	case 6:
		w.ask(by, SwitchLink{index, r.IntN(2) == 0})
	case 7:
		w.ask(by, Partition{[][]string{{node}}})
	case 8:
		w.ask(by, Heal{})
	case 9:
		if w.agents[node] != 0 {
			w.crash(node)
		}
	case 10:
		if w.lab.Standing().Running {
			w.ask(ByHand, EndRun{})
		} else {
			w.ask(ByHand, BeginRun{})
		}
	case 11:
		if w.lab.Standing().Applying {
			return
		}
		w.ask(ByHand, w.applied(randomTopology(r)))
	}
	if r.IntN(10) == 0 && w.asked > 1 {
		w.handle(Cancel{1 + r.Uint64N(w.asked), errors.New("gone")})
	}
}

// randomTopology draws a file.
func randomTopology(r *rand.Rand) string {
	var b strings.Builder
	fmt.Fprint(&b, "name: soak\nseed: 1\ntopology:\n  nodes:\n")
	nodes, switches := 2+r.IntN(4), r.IntN(3)
	for i := range nodes {
		var keys []string
		if r.IntN(3) == 0 {
			keys = append(keys, "restart: always")
		}
		if r.IntN(4) == 0 {
			keys = append(keys, fmt.Sprintf("exec: [{command: c%d, stage: %s}]", r.IntN(2), []string{"created", "configured", "healthy"}[r.IntN(3)]))
		}
		if i > 0 && r.IntN(4) == 0 {
			keys = append(keys, fmt.Sprintf("wait_for: [{node: n%d, stage: configured}]", r.IntN(i)))
		}
		if r.IntN(5) == 0 {
			keys = append(keys, "healthcheck: {command: h, interval: 1s, retries: 3, start_period: 10s}")
		}
		fmt.Fprintf(&b, "    n%d: {%s}\n", i, strings.Join(keys, ", "))
	}
	for i := range switches {
		fmt.Fprintf(&b, "    s%d: {kind: switch, stp: %t}\n", i, r.IntN(2) == 0)
	}
	fmt.Fprint(&b, "  links:\n")
	link := func(a, b_, settings string) { fmt.Fprintf(&b, "    - {endpoints: [%q, %q]%s}\n", a, b_, settings) }
	settings := func() string {
		return []string{"", "", ", delay: 1ms", ", loss: 1%", ", down: true", ", mtu: 1500, delay: 2ms"}[r.IntN(6)]
	}
	port := map[string]int{}
	face := func(node string) string {
		port[node]++
		return fmt.Sprintf("%s:eth%d", node, port[node]-1)
	}
	for i := 1; i < nodes; i++ {
		if switches > 0 && r.IntN(2) == 0 {
			s := fmt.Sprintf("s%d", r.IntN(switches))
			link(face(fmt.Sprintf("n%d", i)), face(s), strings.Replace(settings(), "mtu: 1500, ", "", 1))
			continue
		}
		link(face(fmt.Sprintf("n%d", i)), face(fmt.Sprintf("n%d", r.IntN(i))), settings())
	}
	return b.String()
}
