package provider_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/provider"
)

// TestSendRates: a queue pair that is connected and has a congestion control has a rate: at first that of the line, less
// once it was told of marks. One that is not connected any more has none, nor where nothing bounds the rate.
func TestSendRates(t *testing.T) {
	for _, slow := range []bool{false, true} { // restarts are counted around the algorithm
		c := dcqcn()
		c.DCQCN.SlowRestart = slow
		w, _, _ := newCongestedWorld(t, c, 1)
		w.sinks()
		if got := w.hosts[0].device.SendRates(); got != nil {
			t.Errorf("before there is a connection: %+v", got)
		}
		client, server := w.connect()
		qp := client.qp.Number()
		want := []provider.SendRate{{Local: addresses[0], Remote: addresses[1], QPN: qp, Rate: 10e9, Target: 10e9}}
		if got := client.device.SendRates(); !slices.Equal(got, want) {
			t.Errorf("connected: %+v, want %+v", got, want)
		}
		w.want(client.qp.Write(nil, client.at(0, 64<<10), base, server.mr.RemoteToken(), 0), success)
		client.result(success)
		got := client.device.SendRates()
		if len(got) != 1 || got[0].QPN != qp || got[0].Rate >= 9e9 || got[0].Target <= got[0].Rate || got[0].Target > 10e9 {
			t.Errorf("after marks: %+v", got)
		}
		client.qp.Flush()
		w.settle()
		if got := client.device.SendRates(); got != nil {
			t.Errorf("after the end: %+v", got)
		}
	}
	for _, c := range []congestion.Config{{}, {Algorithm: congestion.None}} {
		w, _, _ := newCongestedWorld(t, c, 1)
		client, _ := w.connect()
		if got := client.device.SendRates(); got != nil {
			t.Errorf("%v: %+v", c.Algorithm, got)
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
		if got := c.at.device.SendRates(); len(got) != 1 || got[0].Rate != c.want || got[0].Target != c.want {
			t.Errorf("%+v, want %v", got, c.want)
		}
	}
}
