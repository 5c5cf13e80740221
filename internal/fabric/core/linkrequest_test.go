package core

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/topology"
)

// This file tests what commands ask of links.

func ref[T any](v T) *T { return &v }

// Settings that make no sense are refused in words, and change nothing.
func TestNonsenseIsRefused(t *testing.T) {
	w := built(t, pair)
	before, done := w.lab.Link(0), len(w.done)
	for _, c := range []struct {
		change topology.Change
		want   string
	}{
		{topology.Change{Rate: ref(uint64(1e9)), Queue: &topology.Queue{Bytes: 4200}}, "queue"},
		{topology.Change{Loss: &topology.Loss{Rate: 1.2}}, "packets from a: .*loss"},
		{topology.Change{Loss: &topology.Loss{Rate: -0.1}}, "packets from a: .*loss"},
		{topology.Change{Delay: ref(-time.Millisecond)}, "packets from a: .*delay"},
		{topology.Change{Jitter: &topology.Jitter{Spread: time.Second}}, "packets from a: .*jitter"},
		{topology.Change{Delay: ref(time.Duration(0)), Reorder: &topology.Reorder{Probability: 0.1}}, "packets from a: .*reorder"},
		{topology.Change{Flap: &topology.Flap{Period: time.Second, Down: time.Second}}, "packets from a: .*flap"},
		{topology.Change{Faults: &[]topology.Fault{{Action: "explode"}}}, "packets from a: .*explode"},
	} {
		a := w.answer(w.ask(ByHand, SetLink{From: "a", Change: c.change}))
		if a.Err == nil || !regexp.MustCompile("^link a:eth0: "+c.want).MatchString(a.Err.Error()) || strings.Contains(a.Err.Error(), "next run") {
			t.Errorf("%+v: %v, want of %s", c.change, a.Err, c.want)
		}
		if diff := cmp.Diff(before, w.lab.Link(0), cmp.AllowUnexported(topology.Impairment{})); diff != "" {
			t.Errorf("%s: -before +after:\n%s", c.want, diff)
		}
	}
	if len(w.done) > done {
		t.Errorf("done: %q", w.done[done:])
	}
	w.judge()
}

// A link that is down from the start comes up with its impairments, which it has before it carries anything.
func TestLinkIsDownFromTheStart(t *testing.T) {
	for file, impaired := range map[string]bool{pair: true, plain: false} {
		file = strings.Replace(file, `"b:eth0"]`, `"b:eth0"], down: true`, 1)
		w := built(t, file)
		for _, d := range w.done {
			if d == "Connect "+theLink {
				t.Error("it is connected")
			}
		}
		w.judge()
		done := len(w.done)
		w.must(SwitchLink{Up: true})
		w.wantDone(done, "Connect "+theLink)
		if k := w.lab.Link(0); !k.Connected || k.Engine != impaired {
			t.Errorf("%+v", k)
		}
		w.judge()
	}
}

// Settings that a link is given while it is down hold when it carries packets again.
func TestSetLinkWhileDown(t *testing.T) {
	w := built(t, plain)
	for _, delay := range []time.Duration{20 * time.Millisecond, 10 * time.Millisecond, 0, 20 * time.Millisecond} {
		w.must(SwitchLink{})
		w.must(SetLink{Change: topology.Change{Delay: &delay}})
		if w.link(w.lab.links[0].spec).connected {
			t.Error("it carries packets")
		}
		w.must(SwitchLink{Up: true})
		w.rest()
		w.judge()
		if k := w.lab.Link(0); k.Asked[0].Delay != delay || k.Asked[1].Delay != delay || k.Engine != (delay > 0) {
			t.Errorf("%v: %+v", delay, k)
		}
	}
}

// Of many commands for a link at once, some of which are given up, each is answered, and the link is as the last that was not
// given up says.
func TestLinkCommandsAtOnce(t *testing.T) {
	for seed := range uint64(50) {
		w := built(t, pair)
		r := rand.New(rand.NewPCG(seed, 0))
		w.rand = rand.New(rand.NewPCG(seed, 1))
		var asked []uint64
		for range 40 {
			c := Command(SetLink{Change: topology.Change{Delay: ref(time.Duration(r.IntN(3)) * time.Millisecond)}})
			if r.IntN(4) == 0 {
				c = SwitchLink{Up: r.IntN(2) == 0}
			}
			asked = append(asked, w.ask(ByHand, c))
			for range r.IntN(3) {
				w.step()
			}
			if r.IntN(4) == 0 {
				w.handle(Cancel{asked[r.IntN(len(asked))], errors.New("gone")})
			}
		}
		w.must(SwitchLink{Up: true})
		w.must(SetLink{Change: topology.Change{Delay: ref(2 * time.Millisecond)}})
		for _, id := range asked {
			w.answer(id)
		}
		w.rest()
		w.judge()
		if k := w.lab.Link(0); !k.Connected || !k.Engine || k.Asked[0].Delay != 2*time.Millisecond {
			t.Fatalf("seed %d: %+v", seed, k)
		}
	}
}

// While a command waits for packets that are on their way for long, other links and other commands for the same link do not.
func TestNothingWaitsForPackets(t *testing.T) {
	w := built(t, strings.Replace(square, `"b:eth0"]`, `"b:eth0"], delay: 1m`, 1))
	w.fail = func(a Action) *Done {
		if r, ok := a.(ReleaseLink); ok && r.Link.Number == 0 {
			return &Done{Late: true}
		}
		return nil
	}
	none := topology.Change{Delay: ref(time.Duration(0))}
	at, told := w.now, len(w.told)
	waits := w.ask(ByHand, SetLink{Change: none})
	w.run(5 * time.Millisecond)
	for _, c := range []Command{
		SetLink{Link: 1, Change: change(t, "delay=2ms")}, Partition{[][]string{{"a", "d"}, {"b", "c"}}}, Partition{[][]string{{"c"}}}, Heal{}, ResetLink{Link: 1}, Heal{},
		SwitchLink{}, SwitchLink{Up: true},
	} {
		if a := w.answer(w.ask(ByRun, c)); a.Err != nil {
			t.Errorf("%+v: %v", c, a.Err)
		}
	}
	if took := w.now - at; took > 30*time.Millisecond {
		t.Errorf("they took %v", took)
	}
	w.wantTold(told, "link a:eth0: delay 0ms", "link b:eth1: delay 2ms",
		"partition a,d b,c: links that are down: 2", "partition c: links that are down: 2", "the partition is over: links that are up again: 2",
		"link b:eth1: reset", "the partition is over: links that are up again: 0", "link a:eth0 is down", "link a:eth0 is up")
	if a := w.answer(waits); a.Err != nil {
		t.Error(a.Err)
	}
	w.must(SetLink{Change: change(t, "loss=50%")})
	if k := w.lab.Link(0); !k.Engine || k.Asked[0].Delay != 0 || k.Asked[0].Loss.Rate != 0.5 {
		t.Errorf("%+v", k)
	}
}

// Between nodes that are up links go on when a node dies, and nothing can be asked of the links that have ended with it.
func TestLinksOfADeadNode(t *testing.T) {
	w := built(t, strings.ReplaceAll(square, `eth0"]`, `eth0"], delay: 1ms`))
	w.crash("a")
	w.rest()
	w.judge()
	const down = "node a is down: its agent was killed by SIGKILL"
	w.refused(SetLink{Change: change(t, "delay=2ms")}, "link a:eth0: "+down)
	w.refused(ResetLink{Link: 3}, "link d:eth1: "+down)
	w.refused(SwitchLink{}, "link a:eth0: "+down)
	w.must(SetLink{Link: 1, Change: change(t, "delay=2ms")})
	w.judge()
	if k := w.lab.Link(1); !k.Connected || k.Asked[0].Delay != 2*time.Millisecond {
		t.Errorf("%+v", k)
	}
	if err := w.lab.Ends(0); err == nil || err.Error() != "link a:eth0: "+down {
		t.Errorf("%v", err)
	}
}
