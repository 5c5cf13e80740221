package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// drawEvents draws a timeline: events at a time, or after another that stands anywhere
// in the file, some of them repeated. do makes the event do something.
func drawEvents(r *rapid.T, do func(i int, e *topology.Event)) []topology.Event {
	n := rapid.IntRange(1, 12).Draw(r, "events")
	order := rapid.Permutation(numbers(n)).Draw(r, "order") // of what waits for what
	events := make([]topology.Event, n)
	ms := func(what string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(r, what)) * time.Millisecond
	}
	for k, i := range order {
		e := topology.Event{Name: fmt.Sprintf("e%d", i), At: ms("at", 30)}
		if k > 0 && rapid.Bool().Draw(r, "waits") {
			e.After = fmt.Sprintf("e%d", order[rapid.IntRange(0, k-1).Draw(r, "for")])
		}
		if e.Repeat = rapid.IntRange(0, 4).Draw(r, "repeat"); e.Repeat > 1 {
			e.Every = ms("every", 20)
		}
		do(i, &e)
		events[i] = e
	}
	return events
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Events that take no time happen exactly when the file says: at their time or that long
// after another has happened as often as it does, and again every so often; those of one
// instant that wait for nothing in the order of the file.
func TestInstantsOfEvents(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		topo := hosts(2)
		topo.Timeline = drawEvents(r, func(i int, e *topology.Event) { e.Mark = e.Name })
		s := newStage(r, topo)
		got := map[string][]time.Duration{}
		var order []string // of what happened, the first time
		s.published = func(e event.Event) {
			name := strings.TrimPrefix(e.Text, "mark: ")
			if got[name] == nil {
				order = append(order, name)
			}
			got[name] = append(got[name], s.Now())
		}
		if report := s.play(); !report.Passed {
			r.Fatalf("problems %q", report.Problems)
		}
		byName := map[string]*topology.Event{}
		for i := range topo.Timeline {
			byName[topo.Timeline[i].Name] = &topo.Timeline[i]
		}
		var first func(e *topology.Event) time.Duration
		first = func(e *topology.Event) time.Duration {
			if e.After == "" {
				return e.At
			}
			before := byName[e.After]
			return first(before) + time.Duration(max(before.Repeat, 1)-1)*before.Every + e.At
		}
		for i := range topo.Timeline {
			e := &topo.Timeline[i]
			var instants []time.Duration
			for n := range max(e.Repeat, 1) {
				instants = append(instants, first(e)+time.Duration(n)*e.Every)
			}
			if !slices.Equal(got[e.Name], instants) {
				r.Fatalf("%+v happened at %v, want %v", e, got[e.Name], instants)
			}
		}
		waits := func(e topology.Event) bool { return e.After != "" }
		free := slices.DeleteFunc(slices.Clone(topo.Timeline), waits)
		slices.SortStableFunc(free, func(a, b topology.Event) int { return cmp.Compare(a.At, b.At) })
		order = slices.DeleteFunc(order, func(name string) bool { return waits(*byName[name]) })
		for i, e := range free {
			if order[i] != e.Name {
				r.Fatalf("happened in the order of %q, but %s is next in the file", order[:i+1], e.Name)
			}
		}
	})
}

// However long changes take, and whichever fail: each is tried as often as it is to
// happen, not before its time, those to links one after the other, and those to one node.
func TestChangesTakeTurns(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		topo := hosts(3)
		s := newStage(r, topo)
		topo.Timeline = drawEvents(r, func(i int, e *topology.Event) {
			switch rapid.IntRange(0, 2).Draw(r, "what") {
			case 0:
				e.Down, e.Link = true, i%len(topo.Links)
			case 1:
				e.Heal = true
			default:
				e.Node, e.NodeAction = fmt.Sprintf("n%d", i%2), topology.RestartNode
			}
			s.slow[changeOf(e)] = time.Duration(rapid.IntRange(0, 50).Draw(r, "takes")) * time.Millisecond
			if rapid.IntRange(0, 4).Draw(r, "fails") == 0 {
				s.refuse[changeOf(e)] = errors.New("it cannot be")
			}
		})
		report := s.play()
		times, failed := 0, 0
		for i := range topo.Timeline {
			e := &topo.Timeline[i]
			times += max(e.Repeat, 1)
			if s.refuse[changeOf(e)] != nil {
				failed += max(e.Repeat, 1)
			}
		}
		if got := len(s.logged("down", "heal", "restart")); got != times {
			r.Errorf("%d changes, want %d", got, times)
		}
		if len(report.Problems) != failed {
			r.Errorf("%d problems, want %d: %q", len(report.Problems), failed, report.Problems)
		}
		if s.overlaps != "" {
			r.Errorf("at once: %s", s.overlaps)
		}
	})
}

// A scenario of anything that can happen ends, with or without an interruption, leaves
// nothing behind, and is the same the second time.
func TestAnyScenarioEnds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		topo := hosts(3)
		for i := range rapid.IntRange(1, 4).Draw(r, "workloads") {
			w := pair(fmt.Sprintf("w%d", i), time.Duration(rapid.IntRange(1, 3000).Draw(r, "ms"))*time.Millisecond)
			w.Start = time.Duration(rapid.IntRange(0, 1000).Draw(r, "start")) * time.Millisecond
			w.Manual, w.Reconnect, w.Verify = rapid.Bool().Draw(r, "manual"), rapid.Bool().Draw(r, "reconnect"), rapid.Bool().Draw(r, "verify")
			w.Flows = append(w.Flows, topology.Flow{From: "n2", To: "n1"})
			topo.Workloads = append(topo.Workloads, w)
		}
		some := func(i int) string { return topo.Workloads[i%len(topo.Workloads)].Name }
		topo.Timeline = drawEvents(r, func(i int, e *topology.Event) {
			e.At *= 50
			e.Every *= 20
			if e.After == "" && rapid.Bool().Draw(r, "when") {
				e.When = &topology.Trigger{Workload: some(i)}
				switch rapid.IntRange(0, 3).Draw(r, "trigger") {
				case 0:
					e.When.State = topology.WorkloadDone
				case 1:
					e.When.State = topology.WorkloadFailed
				case 2:
					e.When.Bound = topology.Bound{Relation: ">=", Value: 100}
				default:
					e.When = &topology.Trigger{Counter: "Ticks", Node: "n1", Bound: topology.Bound{Relation: ">=", Value: 1000}}
				}
			}
			switch rapid.IntRange(0, 6).Draw(r, "what") {
			case 0:
				e.Workload = some(i)
			case 1:
				e.Workload, e.Stop = some(i), true
			case 2:
				e.Node, e.NodeAction = fmt.Sprintf("n%d", i%3), topology.PauseNode
			case 3:
				e.Node, e.NodeAction = fmt.Sprintf("n%d", i%3), topology.KillNode
			case 4:
				e.Node, e.NodeAction = fmt.Sprintf("n%d", i%3), topology.StartNode
			case 5:
				e.Node, e.NodeAction = fmt.Sprintf("n%d", i%3), topology.RestartNode
			default:
				e.Snapshot = "s"
			}
		})
		interrupt := time.Duration(0)
		if rapid.Bool().Draw(r, "interrupted") {
			interrupt = time.Duration(rapid.IntRange(1, 5000).Draw(r, "at")) * time.Millisecond
		}
		once := func() string {
			s := newStage(r, topo)
			s.counter["Ticks"] = func() uint64 { return uint64(s.Now() / time.Millisecond) }
			report, err := s.begin(func(p *Play) {
				if interrupt > 0 {
					s.AfterFunc(interrupt, p.Interrupt)
				}
			})
			if err != nil && (interrupt == 0 || !errors.Is(err, ErrInterrupted)) {
				r.Fatal(err)
			}
			return fmt.Sprintf("%+v\n%s", report, strings.Join(s.log, "\n"))
		}
		if first, second := once(), once(); first != second {
			r.Errorf("first\n%s\nsecond\n%s", first, second)
		}
	})
}
