package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// serving is a lab in which a workload has a server in n0 and clients in the others.
func serving(t *testing.T, clients int, exit func(node string) (Exit, time.Duration)) (*topology.Topology, *fakeStage) {
	topo := hosts(clients + 1)
	w := topology.Workload{Name: "w", Operation: topology.Program, Timeout: time.Minute}
	for i := range clients + 1 {
		w.Nodes = append(w.Nodes, fmt.Sprintf("n%d", i))
		w.Commands = append(w.Commands, []string{[]string{"server", "client"}[min(i, 1)]})
	}
	topo.Workloads = []topology.Workload{w}
	s := newStage(t, topo)
	s.exit = func(node string, _ Command) (Exit, time.Duration) { return exit(node) }
	s.ready = func(topology.Readiness) time.Duration { return 3 * time.Second }
	return topo, s
}

// Objects of a program that has ended may be gone a little later. Those that stay for long are left over.
func TestProgramIsGoneLate(t *testing.T) {
	for gone, want := range map[time.Duration]string{
		time.Second: "true 0", 1900 * time.Millisecond: "true 0", 3 * time.Second: "false 4 (n0: 2 QPs, n1: 2 QPs)", 0: "false 4 (n0: 2 QPs, n1: 2 QPs)",
	} {
		topo, s := serving(t, 1, func(string) (Exit, time.Duration) { return Exit{}, 0 })
		topo.Checks = []topology.Check{{Left: true, Bounds: []topology.Bound{{Metric: topology.Leftovers, Relation: "==", Value: 0, Text: "0"}}}}
		s.inUse, s.gone = provider.Usage{Qps: 2}, gone
		if c := s.play().Checks[0]; fmt.Sprint(c.Passed, " ", c.Got) != want {
			t.Errorf("gone at %v: %v %s, want %s", gone, c.Passed, c.Got, want)
		}
	}
}

// programs tells how a workload's programs ended, in a line for each.
func describePrograms(w *report.Workload) (lines []string) {
	for _, p := range w.Programs {
		status := "no status"
		if p.ExitStatus != nil {
			status = fmt.Sprintf("status %d", *p.ExitStatus)
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{p.Node, status, p.Error, p.Ended}, ", ")))
	}
	return lines
}

const writes = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      5000             1104.01            1000.00 \t\t   0.016000\n"

// The clients begin when the server is ready, and what they print is measured.
func TestServerFirst(t *testing.T) {
	topo, s := serving(t, 2, func(node string) (Exit, time.Duration) {
		if node == "n0" {
			return Exit{Output: "not read"}, 5*time.Second + time.Millisecond
		}
		return Exit{Output: writes}, 2 * time.Second
	})
	topo.Checks = []topology.Check{{Workload: "w", Bounds: []topology.Bound{
		{Metric: topology.Throughput, Relation: ">=", Value: 16e9, Text: "16gbit"}, {Metric: topology.MessageRate, Relation: ">=", Value: 32000, Text: "32000"},
		{Metric: topology.LatencyP99, Relation: "<=", Value: 1e9, Text: "1s"},
	}}}
	r := s.play()
	w := &r.Workloads[0]
	want(t, s.logged("exec"), "0s exec server in n0", "3s exec client in n1", "3s exec client in n2")
	want(t, describePrograms(w), "n0, status 0, ,", "n1, status 0, ,", "n2, status 0, ,")
	if w.Errors != 0 || w.Messages != 10000 || math.Abs(w.Gbps-16.777216) > 1e-6 || w.MessageRate != 32000 || !w.Programs[0].Server || w.Output != writes {
		t.Errorf("%+v", w)
	}
	var checks []string
	for _, c := range r.Checks {
		checks = append(checks, fmt.Sprintf("%v %s", c.Passed, c.Got))
	}
	want(t, checks, "true 16.78gbit", "true 32000/s", "false none was printed by its programs")
	want(t, s.logged("workload w"), "0s workload w: `server` in n0, then `client` in n1, n2", "5.001s workload w done: programs: 3, failed: 0, 16.8 Gb/s")
}

// The other programs end, whatever becomes of one, and the one to blame is named.
func TestServersAndClientsEnd(t *testing.T) {
	const never = 24 * time.Hour
	for _, tt := range []struct {
		name     string
		ready    time.Duration
		server   Exit
		serves   time.Duration
		client   Exit
		runs     time.Duration
		want     []string
		until    time.Duration // the end of the workload
		problems string
	}{
		{"a server that serves on", 0, Exit{Status: 143}, never, Exit{}, time.Second,
			[]string{"n0, status 143, , after its last client", "n1, status 0, ,"}, 3 * time.Second, ""},
		{"a server that fails", 0, Exit{Status: 1, Errors: "no device"}, time.Second, Exit{Status: 143}, never,
			[]string{"n0, status 1, exit status 1: no device,", "n1, status 143, , after its server had failed"}, 7 * time.Second, "node n0: exit status 1: no device"},
		{"a client that fails", 0, Exit{Status: 143}, never, Exit{Status: 2}, time.Second,
			[]string{"n0, status 143, , after its last client", "n1, status 2, exit status 2,"}, 3 * time.Second, "node n1: exit status 2"},
		{"a client that hangs", 0, Exit{}, 2 * time.Second, Exit{}, never,
			[]string{"n0, status 0, ,", "n1, status 143, it did not end within 60s,"}, time.Minute, "node n1: it did not end within 60s"},
		{"a server that is never ready", -1, Exit{Status: 143}, never, Exit{}, 0,
			[]string{"n0, status 143, it did not listen within 60s: a server that never does has `ready: started`, since it was not ready", "n1, no status, ,"}, time.Minute,
			"node n0: it did not listen within 60s: a server that never does has `ready: started`"},
		{"a server that ends before", -1, Exit{}, time.Second, Exit{}, 0,
			[]string{"n0, status 0, it ended before it was ready for its clients,", "n1, no status, ,"}, time.Second, "node n0: it ended before it was ready for its clients"},
		{"a server that fails before", -1, Exit{Status: 127}, time.Second, Exit{}, 0,
			[]string{"n0, status 127, exit status 127,", "n1, no status, ,"}, time.Second, "node n0: exit status 127"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			topo, s := serving(t, 1, func(node string) (Exit, time.Duration) {
				if node == "n0" {
					return tt.server, tt.serves
				}
				return tt.client, tt.runs
			})
			topo.Workloads[0].Timeout = time.Minute
			if tt.ready < 0 {
				topo.Workloads[0].Timeout = time.Hour
			}
			s.ready = func(topology.Readiness) time.Duration { return tt.ready }
			r := s.play()
			w := &r.Workloads[0]
			want(t, describePrograms(w), tt.want...)
			if w.Error != tt.problems || w.Ended != tt.until.Seconds() || (w.Errors == 0) != (tt.problems == "") || r.Passed != (tt.problems == "") {
				t.Errorf("%q, errors %d, ended %v", w.Error, w.Errors, w.Ended)
			}
		})
	}
}

// A workload that is stopped ends, before its clients have begun and after that, and can
// begin again.
func TestServerStopped(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 4 * time.Second} {
		topo, s := serving(t, 1, func(string) (Exit, time.Duration) { return Exit{}, time.Hour })
		topo.Workloads[0].Timeout = 2 * time.Hour
		topo.Timeline = []topology.Event{
			{At: at, Workload: "w", Stop: true},
			{At: at + 10*time.Second, Workload: "w"},
			{At: at + 20*time.Second, Workload: "w", Stop: true},
		}
		topo.Workloads[0].Manual = true
		topo.Timeline = append([]topology.Event{{At: 0, Workload: "w"}}, topo.Timeline...)
		r := s.play()
		w := &r.Workloads[0]
		want(t, describePrograms(w), "n0, status 143, , with the workload", "n1, status 143, , with the workload")
		began := slices.DeleteFunc(s.logged("exec client"), func(line string) bool { return strings.HasPrefix(line, "3s ") })
		want(t, began, fmt.Sprintf("%v exec client in n1", at+13*time.Second))
		if w.Errors != 0 || !r.Passed {
			t.Errorf("%+v", w)
		}
	}
}

// Ctrl-C ends what runs, also a server whose clients are still to begin.
func TestServerInterrupted(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 4 * time.Second} {
		_, s := serving(t, 1, func(string) (Exit, time.Duration) { return Exit{}, time.Hour })
		r, err := s.begin(func(p *Play) { s.AfterFunc(at, func() { s.Go(p.Interrupt) }) })
		if err == nil || !r.Interrupted || r.Workloads[0].Errors != 0 {
			t.Errorf("%v: %+v", err, r)
		}
		if began := len(s.logged("exec client")) > 0; began != (at > 3*time.Second) {
			t.Errorf("clients began: %v", began)
		}
	}
}
