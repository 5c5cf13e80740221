package programs

import (
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/topology"
)

// writes is a workload of perftest that goes on for long.
var writes = topology.Workload{
	Name: "writes", Operation: topology.Program, Nodes: []string{"server", "client"}, Timeout: time.Minute,
	Commands: [][]string{{"ib_write_bw", "-D", "20"}, {"ib_write_bw", "-D", "20", "server"}},
}

// running starts the writes, and returns when there is traffic.
func running(t *testing.T) (*labtest.Lab, *labtest.Running) {
	t.Helper()
	fit(t)
	need.Check(t, need.Programs("ib_write_bw"))
	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client"))
	r := l.StartWorkloads(writes)
	l.Node("client").Await("RDMAOutFrames>1000")
	return l, r
}

// Commands that look at a node see the queue pairs of its programs: with their peers,
// processes and packets, in use, and in the files of /sys.
func TestSeen(t *testing.T) {
	l, _ := running(t)
	ndklab, err := lab.Open(t.Context(), l.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer ndklab.Close()
	list, err := ndklab.Nodes.Connections(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string][2]uint32{}
	for _, c := range list.Connections {
		numbers[c.Node] = [2]uint32{c.QPN, c.RemoteQPN}
		if c.Type != "QueuePair" || c.Transport != "RC" || c.Process != "ib_write_bw" || c.PID == 0 || c.Local == "" || c.Remote == "" || c.Sent+c.Received == 0 {
			t.Errorf("%+v", c)
		}
	}
	if s, c := numbers["server"], numbers["client"]; len(list.Connections) != 2 || s[0] != c[1] || s[1] != c[0] {
		t.Errorf("%+v", list.Connections)
	}
	o, err := ndklab.Observe(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range o.Nodes {
		if c := n.Connections; len(c) != 1 || c[0].Type != "QueuePair" || c[0].Transport != "RC" || c[0].State == "" || c[0].Count != 1 {
			t.Errorf("a monitor sees of %s: %+v", n.Name, c)
		}
	}
	const rises = `cd /sys/class/infiniband/ndk0/ports/1/counters; first=$(cat port_xmit_packets)
until [ $(cat port_xmit_packets) -gt $first ]; do sleep 0.1; done; echo $first`
	text, err := l.Node("client").Run(t.Context(), "timeout", "20", "sh", "-c", rises)
	if err != nil || strings.TrimSpace(text) == "0" {
		t.Errorf("packets sent, as /sys has it: %q, %v", text, err)
	}
}

// A program whose peer's node dies ends, with an event of its queue pair; the node comes
// back, and the workload runs there again.
func TestNodeOfProgramDies(t *testing.T) {
	l, r := running(t)
	watch := l.Watch()
	l.Node("server").Kill()
	if e := watch.Next(event.QPError); e.Node != "client" || !strings.Contains(e.Text, "no answer from the peer") {
		t.Errorf("%+v", e)
	}
	w := r.Wait()[0]
	if len(w.Programs) != 2 || w.Errors != 2 || w.Programs[0].ExitStatus != nil || *w.Programs[1].ExitStatus == 0 {
		t.Errorf("%+v", w)
	}
	l.Node("server").Start()
	again := writes
	again.Commands = [][]string{{"ib_write_bw", "-n", "200"}, {"ib_write_bw", "-n", "200", "server"}}
	if w := l.Workload(again); w.Errors != 0 || w.Messages != 200 {
		t.Errorf("after the node has started again: %+v", w)
	}
}

// The transport's counters of a program are there when the program has ended, which as a rule closes no device.
func TestCountersOfEnded(t *testing.T) {
	fit(t)
	need.Check(t, need.Programs("ib_write_bw"))
	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client"))
	w := writes
	w.Commands = [][]string{{"ib_write_bw", "-n", "200"}, {"ib_write_bw", "-n", "200", "server"}}
	l.Workload(w)
	counted := l.Node("client").Counters()
	for name, least := range map[string]uint64{"packets_sent": 200, "acks_received": 1} {
		if counted[name] < least {
			t.Errorf("%s is %d, want at least %d", name, counted[name], least)
		}
	}
}
