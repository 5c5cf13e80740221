package transport

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestScopeOfCNPs: the least time between two counts for one queue pair, for all of a peer, or for all there are.
func TestScopeOfCNPs(t *testing.T) {
	const minTime = 10 * time.Microsecond
	for scope, want := range map[congestion.Scope][]string{
		congestion.PerQP:      {"a1", "a2", "b1"},
		congestion.PerAddress: {"a1", "b1"},
		congestion.PerPort:    {"a1"},
	} {
		g := &congestionControl{Config: congestion.Config{CNP: congestion.CNP{MinTime: minTime, Per: scope}}}
		a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		channels := []*Channel{{flow: roce.Flow{Remote: a}}, {flow: roce.Flow{Remote: a}}, {flow: roce.Flow{Remote: b}}}
		for _, now := range []time.Duration{0, minTime - 1, minTime} {
			var got []string
			for i, c := range channels {
				if g.isCNPDue(now, c) {
					got = append(got, []string{"a1", "a2", "b1"}[i])
				}
			}
			due := want
			if now == minTime-1 {
				due = nil
			}
			if len(got) != len(due) || len(got) > 0 && got[len(got)-1] != due[len(due)-1] {
				t.Errorf("scope %d at %v: CNPs for %v, want %v", scope, now, got, due)
			}
		}
	}
}

// TestClass: the class that a consumer asks for stands in for the device's, but for the ECN field.
func TestClass(t *testing.T) {
	for _, c := range []struct {
		algorithm congestion.Algorithm
		requested uint8
		op        roce.Opcode
		want      uint8
	}{
		{congestion.Window, 0, roce.WriteOnly, 26 << 2},
		{congestion.Window, 10 << 2, roce.WriteOnly, 10 << 2},
		{congestion.WithDCQCN, 0, roce.WriteOnly, 26<<2 | roce.ECT0},
		{congestion.WithDCQCN, 10 << 2, roce.WriteOnly, 10<<2 | roce.ECT0},
		{congestion.WithDCQCN, 10 << 2, roce.Acknowledge, 10 << 2},
	} {
		g := &congestionControl{Config: congestion.Config{Algorithm: c.algorithm, DSCP: 26}}
		if got := g.classOf(c.requested, c.op); got != c.want {
			t.Errorf("%v, %#x: %v has class %#x, want %#x", c.algorithm, c.requested, c.op, got, c.want)
		}
	}
}

// TestWhoSpaces: a queue pair keeps to the rate of its line by itself, unless the carrier takes packets one by one, the rate is
// unknown, or it would be woken later than it may catch up with.
func TestWhoSpaces(t *testing.T) {
	for _, c := range []struct {
		algorithm congestion.Algorithm
		line      float64
		onLine    bool
		want      bool
	}{
		{congestion.None, 1e9, false, true}, {congestion.WithDCTCP, 2.5e9, false, true}, {congestion.WithDCQCN, 2.7e9, false, false},
		{congestion.None, 1e9, true, false}, {congestion.None, 0, false, false},
	} {
		g := &congestionControl{Config: congestion.Config{Algorithm: c.algorithm, Burst: 32 << 10, WakeTime: 100 * time.Microsecond}}
		agreed := rc.Connection{MTU: 4096}
		if g.pace(&agreed, netip.MustParseAddr("10.0.0.1"), c.line, c.onLine); agreed.Pacer.SpacesAll != c.want {
			t.Errorf("%v, a line of %v bit/s, onLine %v: it spaces: %v", c.algorithm, c.line, c.onLine, !c.want)
		}
	}
}
