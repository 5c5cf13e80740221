package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
)

// TestSendStates: a queue pair that is connected and has a congestion control has a rate: at first that of the line, less
// once it was told of marks, which it counts. One that is not connected any more has no state.
func TestSendStates(t *testing.T) {
	for _, slow := range []bool{false, true} { // restarts are counted around the algorithm
		c := dcqcn()
		c.DCQCN.SlowRestart = slow
		w, _, _ := newCongestedWorld(t, c, 1)
		w.sinks()
		if got := w.hosts[0].device.SendStates(); got != nil {
			t.Errorf("before there is a connection: %+v", got)
		}
		client, server := w.connect()
		qp := client.qp.Number()
		got := client.device.SendStates()
		if len(got) != 1 || got[0].Local != addresses[0] || got[0].Remote != addresses[1] || got[0].QPN != qp || got[0].Rate != 10e9 || got[0].Target != 10e9 || got[0].CNPs != 0 {
			t.Errorf("connected: %+v", got)
		}
		w.want(client.qp.Write(nil, client.at(0, 64<<10), base, server.mr.RemoteToken(), 0), success)
		client.result(success)
		got = client.device.SendStates()
		if len(got) != 1 || got[0].QPN != qp || got[0].Rate >= 9e9 || got[0].Target <= got[0].Rate || got[0].Target > 10e9 {
			t.Errorf("after marks: %+v", got)
		}
		if want := client.device.TransportCounters()["cnps_received"]; got[0].CNPs != want || want == 0 {
			t.Errorf("%d CNPs, want %d", got[0].CNPs, want)
		}
		client.qp.Flush()
		w.settle()
		if got := client.device.SendStates(); got != nil {
			t.Errorf("after the end: %+v", got)
		}
	}
}

// A queue pair without a rate has a window, unless it is one that nothing bounds.
func TestSendWindow(t *testing.T) {
	unbounded := congestion.Config{Algorithm: congestion.None, Unbounded: true}
	small := congestion.Config{Algorithm: congestion.WithDCTCP, DCTCP: congestion.DefaultDCTCP(), Unbounded: true}
	small.DCTCP.RTT = 10 * time.Microsecond
	for _, c := range []struct {
		congestion.Config
		least, most int64
	}{{congestion.Config{}, 64 << 10, 64 << 20}, {unbounded, 0, 0}, {small, 1 << 10, 20 << 10}} {
		w, _, _ := newCongestedWorld(t, c.Config, 1)
		client, _ := w.connect()
		got := client.device.SendStates()
		if len(got) != 1 || got[0].Rate != 0 || got[0].Target != 0 || got[0].Window < c.least || got[0].Window > c.most {
			t.Errorf("%v: %+v, want a window of %d to %d bytes", c.Algorithm, got, c.least, c.most)
		}
	}
}

// TestLineRate: a queue pair begins at the rate that its line has when it is connected, and one that is connected keeps its own.
func TestLineRate(t *testing.T) {
	w, _, _ := newCongestedWorld(t, dcqcn(), 1)
	w.hosts[0].device.SetLineRate(addresses[0], 5e9)
	client, server := w.connect()
	client.device.SetLineRate(addresses[0], 2e9)
	server.device.SetLineRate(netip.MustParseAddr("10.9.9.9"), 1e9) // which it does not have
	for _, c := range []struct {
		at   *host
		want float64
	}{{client, 5e9}, {server, 10e9}} {
		if got := c.at.device.SendStates(); len(got) != 1 || got[0].Rate != c.want || got[0].Target != c.want {
			t.Errorf("%+v, want %v", got, c.want)
		}
	}
}
