package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// logged is the instants and the lines of a stage's log that contain one of some texts,
// the instants to the millisecond.
func (s *fakeStage) logged(texts ...string) []string {
	var all []string
	for _, line := range s.log {
		at, rest, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(rest, text) }) {
			d, err := time.ParseDuration(at)
			if err != nil {
				s.t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%v %s", d.Round(time.Millisecond), rest))
		}
	}
	return all
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWorkloadsRunAtTheirTimes(t *testing.T) {
	topo := hosts(3)
	late := pair("late", 500*time.Millisecond)
	late.Start = time.Second
	incast := topology.Workload{
		Name: "in", Operation: topology.Send, Pattern: topology.Incast, Nodes: []string{"n0", "n1", "n2"}, Size: 64, Count: 100,
		Flows: []topology.Flow{{From: "n1", To: "n0"}, {From: "n2", To: "n0"}},
	}
	topo.Workloads = []topology.Workload{pair("w", 250*time.Millisecond), incast, late}
	s := newStage(t, topo)
	r := s.play()
	want(t, s.logged("run ", "workload "),
		"0s workload w: write of 1KB from n0 to n1",
		"0s workload in: send of 64B, incast of 3 nodes, flows: 2",
		"0s run w/0 from n0", "0s run in/0 from n1", "0s run in/1 from n2",
		"100ms workload in done: messages: 200, errors: 0, 1.02 Mb/s",
		"250ms workload w done: messages: 250, errors: 0, 8.00 Mb/s",
		"1s workload late: write of 1KB from n0 to n1", "1s run late/0 from n0",
		"1.5s workload late done: messages: 500, errors: 0, 8.00 Mb/s",
	)
	if !r.Passed || len(r.Problems) > 0 || r.Seconds < 1.5 || r.Seconds > 1.51 {
		t.Errorf("%+v", r)
	}
	w := r.Workloads[1]
	if len(w.Flows) != 2 || w.Flows[1].From != "n2" || w.Flows[1].Messages != 100 || w.Fairness != 1 || w.Pattern != "incast" || w.Messages != 200 {
		t.Errorf("incast: %+v", w)
	}
	if got := r.Workloads[2].Series; len(got) != 5 || got[0].At < 1 || got[0].At > 1.001 || got[0].Messages != 100 {
		t.Errorf("series of late: %+v", got)
	}
}

func TestTimelineInOrder(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", time.Second)}
	ms := time.Millisecond
	topo.Timeline = []topology.Event{
		{Name: "flap", At: 100 * ms, Repeat: 3, Every: 100 * ms, Down: true},
		{Name: "up", After: "flap", At: 50 * ms, Up: true},
		{After: "up", Mark: "over"},
		{At: 100 * ms, Reset: true},
		{When: &topology.Trigger{Workload: "w", State: topology.WorkloadDone}, At: 10 * ms, Node: "n1", NodeAction: topology.RestartNode},
		{When: &topology.Trigger{Workload: "w", Bound: topology.Bound{Relation: ">=", Value: 500}}, Snapshot: "half"},
	}
	s := newStage(t, topo)
	s.slow["down 0"] = 30 * ms
	r := s.play()
	want(t, s.logged("down 0", "up 0", "reset", "over", "restart", "snapshot"),
		"100ms down 0", "130ms reset 0", "200ms down 0", "300ms down 0", "380ms up 0", "380ms mark: over",
		"500ms the counters are kept as snapshot half",
		"1.01s restart n1",
	)
	if !r.Passed {
		t.Errorf("problems %q", r.Problems)
	}
	if _, ok := r.Snapshots["half"]; !ok {
		t.Errorf("snapshots %v", r.Snapshots)
	}
	var kinds []string
	for _, e := range r.Events {
		kinds = append(kinds, fmt.Sprintf("%.2f %s", e.At.Seconds(), e.Kind))
	}
	want(t, kinds, "0.00 workload-started", "0.13 link-changed", "0.13 link-changed", "0.23 link-changed", "0.33 link-changed",
		"0.38 link-changed", "0.38 mark", "0.50 timeline", "1.00 workload-done", "1.01 node-down", "1.01 node-up")
}

func TestFailedEventIsAProblem(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", 100*time.Millisecond)}
	topo.Timeline = []topology.Event{
		{At: time.Millisecond, Down: true},
		{At: 2 * time.Millisecond, Up: true},
		{At: 3 * time.Millisecond, Workload: "w"},
		{At: 4 * time.Millisecond, Node: "n0", Command: []string{"sh", "-c", "exit 3"}},
		{At: 5 * time.Millisecond, Node: "n1", NodeAction: topology.PauseNode},
	}
	s := newStage(t, topo)
	s.refuse["down 0"] = errors.New("link n0:eth0: the cable is glued")
	s.refuse["pause n1"] = errors.New("node n1 is paused")
	s.links = []report.Link{{Endpoints: [2]string{"n0:eth0", "n1:eth0"}, Directions: [2]report.Direction{{
		Overruns: []report.Overrun{{Figure: "packets", Tolerated: "none lost", Got: "3 lost", Reason: "the host could not keep up", Remedy: "less traffic"}},
	}}}}
	s.exit = func(string, Command) (Exit, time.Duration) {
		return Exit{Status: 3, Errors: "first\nno such device\n"}, time.Second
	}
	r := s.play()
	want(t, r.Problems,
		"timeline at 1ms: link n0:eth0: the cable is glued",
		"timeline at 3ms: workload w cannot start: it has not ended since it was started last",
		"timeline at 5ms: pause of node n1: node n1 is paused",
		"timeline at 4ms: `sh -c 'exit 3'` in node n0: exit status 3: no such device",
		"overrun of link n0:eth0 to n1:eth0: packets: tolerated none lost, got 3 lost: the host could not keep up: less traffic",
	)
	if r.Passed || len(s.logged("up 0")) != 1 {
		t.Errorf("passed %v, log %q", r.Passed, s.log)
	}
}

func TestManualWorkloads(t *testing.T) {
	topo := hosts(2)
	w := pair("w", 10*time.Second)
	w.Manual = true
	never := pair("never", time.Second)
	never.Manual = true
	topo.Workloads = []topology.Workload{w, never}
	topo.Timeline = []topology.Event{
		{Workload: "w", At: 100 * time.Millisecond, Repeat: 2, Every: time.Second},
		{Workload: "w", Stop: true, At: 600 * time.Millisecond, Repeat: 2, Every: time.Second},
		{When: &topology.Trigger{Workload: "never", State: topology.WorkloadStarted}, Heal: true},
		{When: &topology.Trigger{Workload: "w", State: topology.WorkloadFailed}, Snapshot: "failure"},
		{When: &topology.Trigger{Node: "n1", Counter: "Accept", Bound: topology.Bound{Relation: ">=", Value: 3}}, Heal: true},
	}
	s := newStage(t, topo)
	s.counter["Accept"] = func() uint64 { return 2 }
	r := s.play()
	want(t, s.logged("run ", "stop ", "done"),
		"100ms run w/0 from n0", "600ms stop w/0", "600ms workload w done: messages: 499, errors: 0, 7.98 Mb/s",
		"1.1s run w/0 from n0", "1.6s stop w/0", "1.6s workload w done: messages: 998, errors: 0, 7.98 Mb/s",
	)
	want(t, r.Problems,
		"timeline: heal has not happened: it was to wait for workload never to be started; in the end it had not started",
		"timeline: heal has not happened: it was to wait for counter Accept of node n1 to be >= 3; in the end it was 2",
		"workload never has not run: no event of the timeline has started it",
	)
	if got := r.Workloads[0]; got.Messages != 998 || got.Connections != 2 || got.Errors != 0 {
		t.Errorf("%+v", got)
	}
}

func TestCounterStartsWorkload(t *testing.T) {
	topo := hosts(2)
	w := pair("second", 100*time.Millisecond)
	w.Manual = true
	topo.Workloads = []topology.Workload{pair("first", time.Second), w}
	topo.Timeline = []topology.Event{{When: &topology.Trigger{Counter: "Ticks", Bound: topology.Bound{Relation: ">", Value: 600}}, Workload: "second"}}
	s := newStage(t, topo)
	s.counter["Ticks"] = func() uint64 { return uint64(s.Now() / time.Millisecond) } // of each of two nodes
	s.play()
	want(t, s.logged("run second"), "320ms run second/0 from n0")
}

// The counter that an event waits for gets there only when all else is over.
func TestConditionIsLookedAtInTheEnd(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", time.Millisecond)}
	topo.Timeline = []topology.Event{{When: &topology.Trigger{Counter: "Disconnects", Bound: topology.Bound{Relation: ">=", Value: 1}}, Mark: "now"}}
	s := newStage(t, topo)
	s.counter["Disconnects"] = func() uint64 { return uint64(s.Now() / time.Millisecond) }
	if r := s.play(); !r.Passed {
		t.Errorf("%q", r.Problems)
	}
	want(t, s.logged("now"), "1ms mark: now")
}

func TestNodeDiesAmidARun(t *testing.T) {
	for _, victim := range []string{"n0", "n1"} {
		t.Run(victim, func(t *testing.T) {
			topo := hosts(2)
			topo.Workloads = []topology.Workload{pair("w", 20*time.Second)}
			s := newStage(t, topo)
			s.AfterFunc(time.Second, func() { s.die(victim) })
			r := s.play()
			if r.Passed || r.Workloads[0].Errors == 0 || r.Workloads[0].Error != fmt.Sprintf("node %s went down", victim) {
				t.Errorf("%+v", r.Workloads[0])
			}
			want(t, r.Problems, fmt.Sprintf("node %s is down", victim))
			if r.Seconds > 8 {
				t.Errorf("it took %v s to notice", r.Seconds)
			}
		})
	}
}

// A node that the timeline has left down is not a problem.
func TestNodeMeantToBeDown(t *testing.T) {
	topo := hosts(2)
	w := pair("w", 20*time.Second)
	topo.Workloads = []topology.Workload{w}
	topo.Timeline = []topology.Event{{At: time.Second, Node: "n1", NodeAction: topology.KillNode}}
	topo.Checks = []topology.Check{{Workload: "w", Bounds: []topology.Bound{{Metric: topology.Errors, Relation: ">=", Value: 1}}}}
	if r := newStage(t, topo).play(); !r.Passed {
		t.Errorf("problems %q, checks %+v", r.Problems, r.Checks)
	}
}

func TestServerRestarts(t *testing.T) {
	for _, reconnect := range []bool{true, false} {
		t.Run(fmt.Sprint(reconnect), func(t *testing.T) {
			topo := hosts(2)
			w := pair("w", 20*time.Second)
			w.Reconnect, w.Verify = reconnect, true
			later := pair("later", time.Second)
			later.Start = 5 * time.Second
			topo.Workloads = []topology.Workload{w, later}
			topo.Timeline = []topology.Event{{At: time.Second, Node: "n1", NodeAction: topology.RestartNode}}
			s := newStage(t, topo)
			r := s.play()
			if r.Passed != reconnect || r.Workloads[0].Verified {
				t.Errorf("%+v, problems %q", r.Workloads[0], r.Problems)
			}
			if reconnect && r.Workloads[0].Messages != 20000 {
				t.Errorf("%+v", r.Workloads[0])
			}
			if r.Workloads[1].Errors > 0 || r.Workloads[1].Messages != 1000 {
				t.Errorf("a workload that began later: %+v", r.Workloads[1])
			}
		})
	}
}

// A client whose node is paused for good says nothing any more.
func TestWorkloadThatNeverEnds(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", 10*time.Second)}
	topo.Timeline = []topology.Event{{At: time.Second, Node: "n0", NodeAction: topology.PauseNode}}
	s := newStage(t, topo)
	r := s.play()
	if w := r.Workloads[0]; r.Passed || w.Error != "it has completed nothing for 120s" {
		t.Errorf("%+v", w)
	}
	if r.Seconds < 120 || r.Seconds > 130 {
		t.Errorf("after %v s", r.Seconds)
	}
}

// One that is paused for a while has time until the timeline has it go on.
func TestPauseIsNoStall(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", 10*time.Second)}
	topo.Timeline = []topology.Event{
		{At: time.Second, Node: "n0", NodeAction: topology.PauseNode},
		{At: 10 * time.Minute, Node: "n0", NodeAction: topology.ResumeNode},
		{At: 10*time.Minute + time.Second, Workload: "w", Stop: true},
	}
	if r := newStage(t, topo).play(); !r.Passed || r.Seconds < 600 {
		t.Errorf("%v s, %q, %+v", r.Seconds, r.Problems, r.Workloads[0])
	}
}

func TestInterruption(t *testing.T) {
	topo := hosts(2)
	late := pair("late", time.Second)
	late.Start = time.Minute
	topo.Workloads = []topology.Workload{pair("w", time.Hour), late, {Name: "p", Operation: topology.Program, Nodes: []string{"n0", "n1"}, Command: []string{"sleep"}}}
	manual := pair("manual", time.Hour)
	manual.Manual = true
	topo.Workloads = append(topo.Workloads, manual)
	topo.Timeline = []topology.Event{
		{At: time.Minute, Heal: true},
		{At: time.Second, Workload: "manual"},
		{When: &topology.Trigger{Counter: "X", Bound: topology.Bound{Relation: ">=", Value: 1}}, Heal: true},
	}
	for _, at := range []time.Duration{0, time.Nanosecond, time.Microsecond, time.Second, time.Second + 1500*time.Nanosecond, time.Second + 2*time.Microsecond, 2 * time.Minute} {
		t.Run(at.String(), func(t *testing.T) {
			s := newStage(t, topo)
			s.exit = func(string, Command) (Exit, time.Duration) { return Exit{}, time.Hour }
			r, err := s.begin(func(p *Play) {
				s.AfterFunc(at, p.Interrupt)
				s.AfterFunc(at+time.Second, p.Interrupt) // again
			})
			if !errors.Is(err, ErrInterrupted) || r.Passed || len(r.Checks) > 0 {
				t.Errorf("%v, %+v", err, r)
			}
		})
	}
}

// A workload that is stopped before its client runs does not run it.
func TestStoppedAtOnce(t *testing.T) {
	topo := hosts(2)
	w := pair("w", time.Hour)
	w.Manual = true
	late := pair("late", time.Hour)
	late.Start = time.Hour
	topo.Workloads = []topology.Workload{w, late}
	topo.Timeline = []topology.Event{{At: time.Second, Workload: "w"}, {At: time.Second, Workload: "w", Stop: true}, {At: time.Second, Workload: "late", Stop: true}}
	s := newStage(t, topo)
	if r := s.play(); !r.Passed || len(s.logged("run ")) > 0 || r.Seconds > 2 {
		t.Errorf("%+v, %q", r, s.logged("run "))
	}
}

// The findings of a server are lost with its node, also when its client is done.
func TestServerDiesBeforeItTells(t *testing.T) {
	topo := hosts(2)
	w := pair("w", time.Second)
	w.Verify = true
	topo.Workloads = []topology.Workload{w}
	s := newStage(t, topo)
	s.AfterFunc(time.Second+2500*time.Nanosecond, func() { s.die("n1") }) // the client's result is on its way
	r := s.play()
	if got := r.Workloads[0]; got.Error != "node n1 went down, and what its server had found is lost" || got.Verified {
		t.Errorf("%+v", got)
	}
}

// Sends that arrived otherwise than they were sent are errors, as are those that nobody
// has looked at.
func TestVerification(t *testing.T) {
	for _, tt := range []struct {
		found workload.ServerResult
		error string
		count uint64
	}{
		{workload.ServerResult{Verified: 1000}, "", 0},
		{workload.ServerResult{Verified: 900}, "100 of 1000 messages were not verified", 100},
		{workload.ServerResult{Verified: 999, Mismatches: 1, Error: "message 3: byte 7 is wrong"}, "at the server: message 3: byte 7 is wrong", 1},
	} {
		topo := hosts(2)
		w := pair("w", time.Second)
		w.Verify = true
		topo.Workloads = []topology.Workload{w}
		s := newStage(t, topo)
		s.found = &tt.found
		r := s.play()
		if got := r.Workloads[0]; got.Error != tt.error || got.Errors != tt.count || got.Verified != (tt.count == 0) || r.Passed != (tt.count == 0) {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

func TestPrograms(t *testing.T) {
	topo := hosts(3)
	topo.Workloads = []topology.Workload{
		{Name: "good", Operation: topology.Program, Nodes: []string{"n0", "n1"}, Command: []string{"good"}},
		{Name: "bad", Operation: topology.Program, Nodes: []string{"n0", "n2"}, Command: []string{"bad", "a b"}},
		{Name: "long", Operation: topology.Program, Nodes: []string{"n1"}, Command: []string{"long"}, Timeout: 5 * time.Second},
		{Name: "server", Operation: topology.Program, Nodes: []string{"n1"}, Command: []string{"server"}},
	}
	topo.Timeline = []topology.Event{{When: &topology.Trigger{Workload: "long", State: topology.WorkloadDone}, Workload: "server", Stop: true}}
	s := newStage(t, topo)
	var environment []string
	s.exit = func(node string, c Command) (Exit, time.Duration) {
		switch c.Args[0] {
		case "bad":
			if node == "n2" {
				return Exit{Status: 7, Output: "one\ntwo\n"}, time.Second
			}
		case "long", "server":
			return Exit{}, time.Hour
		case "good":
			environment = c.Env
		}
		return Exit{Output: "fine"}, time.Second
	}
	r := s.play()
	want(t, environment, "NDKLAB_LAB=lab", "NDKLAB_NODE=n1", "NDKLAB_SEED=42", "NDKLAB_PEERS=n0", "NDKLAB_PEER_ADDRESSES=10.0.0.1", "NDKLAB_ADDRESS=10.0.0.2")
	status := func(i int) string {
		w := r.Workloads[i]
		if w.ExitStatus == nil {
			return "none"
		}
		return fmt.Sprintf("%d errors, status %d, %q, %q", w.Errors, *w.ExitStatus, w.Output, w.Error)
	}
	want(t, []string{status(0), status(1), status(2), status(3)},
		`0 errors, status 0, "fine", ""`, `1 errors, status 7, "one\ntwo\n", "node n2: exit status 7: two"`,
		`1 errors, status 143, "", "node n1: it did not end within 5s"`, `0 errors, status 143, "", ""`)
	want(t, s.logged("workload bad", "workload server"), "0s workload bad: `bad 'a b'` in n0, n2", "0s workload server: `server` in n1",
		"1s workload bad done: programs: 2, failed: 1", "5s workload server done: programs: 1, failed: 0")
}

// Random events and permutations are drawn from the seed.
func TestDrawnFromTheSeed(t *testing.T) {
	play := func(seed uint64) []string {
		topo := hosts(4)
		topo.Seed = seed
		topo.Workloads = []topology.Workload{{Name: "p", Operation: topology.Send, Pattern: topology.Permutation, Nodes: []string{"n0", "n1", "n2", "n3"}, Size: 64, Duration: 10 * time.Second}}
		topo.Chaos = []topology.Chaos{{Kind: topology.DownLink, Until: 10 * time.Second, Every: time.Second, For: 100 * time.Millisecond, Links: []int{0, 1, 2}}}
		s := newStage(t, topo)
		if r := s.play(); !r.Passed || len(r.Workloads[0].Flows) != 4 {
			t.Errorf("%+v", r)
		}
		return s.logged("down", "up", "run ")
	}
	first := play(1)
	want(t, play(1), first...)
	if slices.Equal(play(2), first) || len(first) < 4+2 {
		t.Errorf("%q", first)
	}
}

func TestNothingToDo(t *testing.T) {
	r := newStage(t, hosts(2)).play()
	if !r.Passed || len(r.Nodes) != 2 || r.Workloads == nil || r.Checks == nil {
		t.Errorf("%+v", r)
	}
}

// A workload that the timeline starts before its time does not start then, too.
func TestStartedAheadOfItsTime(t *testing.T) {
	topo := hosts(2)
	w := pair("w", 100*time.Millisecond)
	w.Start = time.Second
	topo.Workloads = []topology.Workload{w}
	topo.Timeline = []topology.Event{{At: 200 * time.Millisecond, Workload: "w"}}
	s := newStage(t, topo)
	r := s.play()
	want(t, s.logged("run w"), "200ms run w/0 from n0")
	if !r.Passed || r.Workloads[0].Messages != 100 || r.Seconds > 0.31 {
		t.Errorf("%v s, %q, %+v", r.Seconds, r.Problems, r.Workloads[0])
	}
}

// An event may have waited for what another one brings about in the end.
func TestConditionsOneBehindTheOther(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", time.Millisecond)}
	counted := func(name string) *topology.Trigger {
		return &topology.Trigger{Counter: name, Bound: topology.Bound{Relation: ">=", Value: 1}}
	}
	topo.Timeline = []topology.Event{
		{When: counted("Later"), Mark: "second"},
		{When: counted("Disconnects"), Mark: "first"},
	}
	s := newStage(t, topo)
	s.counter["Disconnects"] = func() uint64 { return uint64(s.Now() / time.Millisecond) }
	s.counter["Later"] = func() uint64 { return uint64(len(s.logged("first"))) }
	if r := s.play(); !r.Passed {
		t.Errorf("%q", r.Problems)
	}
	want(t, s.logged("mark"), "1ms mark: first", "1ms mark: second")
}

// A watcher is told for how long nothing will run, if that is not over soon.
func TestTimelineGoesOnWithoutWorkloads(t *testing.T) {
	topo := hosts(2)
	topo.Workloads = []topology.Workload{pair("w", 100*time.Millisecond)}
	for _, tt := range []struct {
		last time.Duration
		told []string
	}{
		{time.Second, nil},
		{10 * time.Second, []string{"100ms no workload is left: the timeline goes on until 10s"}},
	} {
		topo.Timeline = []topology.Event{{At: tt.last - 200*time.Millisecond, Mark: "again", Repeat: 3, Every: 100 * time.Millisecond}}
		s := newStage(t, topo)
		s.play()
		want(t, s.logged("no workload"), tt.told...)
	}
}

// A report has no pids, which say nothing when it is read, and not all that happens in a
// timeline that never rests.
func TestReportIsBounded(t *testing.T) {
	topo := hosts(2)
	topo.Timeline = []topology.Event{{Mark: "again", Repeat: mostEvents + 100, Every: time.Millisecond}, {At: time.Second, Snapshot: "early"}}
	s := newStage(t, topo)
	r := s.play()
	if len(r.Events) != mostEvents {
		t.Errorf("events: %d", len(r.Events))
	}
	for _, n := range slices.Concat(r.Nodes, r.Snapshots["early"]) {
		if n.PID != 0 {
			t.Errorf("node %s has pid %d", n.Name, n.PID)
		}
	}
	if len(r.Nodes) != 2 || len(r.Snapshots["early"]) != 2 {
		t.Errorf("nodes: %d, in the snapshot: %d", len(r.Nodes), len(r.Snapshots["early"]))
	}
}

// An overrun is a problem of the run, unless the file allows it.
func TestOverruns(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		s := newStage(t, hosts(2))
		s.links = []report.Link{{Endpoints: [2]string{"n0:eth0", "n1:eth0"}, Directions: [2]report.Direction{
			{}, {Overruns: []report.Overrun{{Figure: "median delay", Tolerated: "1ms", Got: "3ms", Reason: "the host could not keep up", Remedy: "more processors", Allowed: allowed}}},
		}}}
		r := s.play()
		text := "overrun of link n1:eth0 to n0:eth0: median delay: tolerated 1ms, got 3ms"
		if allowed {
			want(t, r.Problems)
			want(t, s.logged("overrun"))
		} else {
			want(t, r.Problems, text+": the host could not keep up: more processors")
			want(t, s.logged("overrun"), "0s "+text)
		}
		if r.Passed != allowed {
			t.Errorf("allowed: %v, passed: %v", allowed, r.Passed)
		}
	}
}

// A node that starts again serves at once what is still to come, so that the workload can
// begin at its time.
func TestServedAheadAgain(t *testing.T) {
	topo := hosts(2)
	w := pair("w", time.Second)
	w.Start = 5 * time.Second
	topo.Workloads = []topology.Workload{w}
	topo.Timeline = []topology.Event{{At: time.Second, Node: "n1", NodeAction: topology.RestartNode}}
	s := newStage(t, topo)
	served := false
	s.AfterFunc(2*time.Second, func() { served = s.served[end("n1", "w", 0)] })
	if r := s.play(); !r.Passed {
		t.Errorf("%q", r.Problems)
	}
	if !served {
		t.Error("it is not served again before it begins")
	}
}
