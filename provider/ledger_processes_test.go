package provider

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// TestLedgerAtOnce has several processes take from one ledger at once: never do
// they have more than there is, and nothing is left when they have given back
// what they took, or are cleared.
func TestLedgerAtOnce(t *testing.T) {
	const (
		processes = 8
		rounds    = 2000
		limit     = 5
	)
	address := netip.MustParseAddr("10.0.0.1")
	words := make([]uint64, LedgerSize(1)/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	var held, served atomic.Int32
	var ports [4]atomic.Int32
	var all sync.WaitGroup
	ledgers := make([]*Ledger, processes)
	for own := range ledgers {
		l, err := NewLedger(memory, []netip.Addr{address}, own)
		if err != nil {
			t.Fatal(err)
		}
		ledgers[own] = l
		all.Go(func() {
			for i := range rounds {
				if l.take(pdResource, 2, limit) {
					served.Add(1)
					if n := held.Add(2); n > limit {
						t.Errorf("%d are held", n)
					}
					held.Add(-2)
					l.give(pdResource, 2)
				}
				port := (own + i) % len(ports)
				at := netip.AddrPortFrom(address, uint16(port))
				if !l.ClaimPort(at) {
					continue
				}
				if ports[port].Add(1) != 1 {
					t.Errorf("port %d has two holders", port)
				}
				if share, ok := l.PortHolder(at); !ok || share != own {
					t.Errorf("port %d of share %d is share %d's", port, own, share)
				}
				l.usePort(at, PortOfListener)
				ports[port].Add(-1)
				l.ReleasePort(at)
			}
		})
	}
	all.Wait()
	if served.Load() == 0 {
		t.Error("nobody was ever served")
	}
	if ports := ledgers[0].Ports(); len(ports) != 0 {
		t.Errorf("ports are left: %v", ports)
	}
	// Of one that dies with what it has, nothing stays but what it counted.
	dead := ledgers[3]
	if !dead.take(pdResource, limit, limit) || !dead.ClaimPort(netip.AddrPortFrom(address, 1)) {
		t.Fatal("something was left")
	}
	dead.counters().connect.Add(7)
	dead.counters().active.Add(1)
	ledgers[0].Clear(3)
	if !ledgers[0].take(pdResource, limit, limit) || len(ledgers[0].Ports()) != 0 {
		t.Error("the dead one still has something")
	}
	if c := ledgers[0].sum(); c.Connect != 7 || c.ActiveConnection != 0 {
		t.Errorf("counters %+v", c)
	}
}

// TestLedgerScribbled: what no process writes in the port table is nobody's.
func TestLedgerScribbled(t *testing.T) {
	for _, entry := range []uint32{0, 0x100, MaxShares + 1, 0xFF, 0xFFFFFFFF} {
		if share, ok := holderOf(entry); ok {
			t.Errorf("%#x is share %d's", entry, share)
		}
	}
	for share := range MaxShares {
		if got, ok := holderOf(portEntry(share, PortOfSharedEndpoint)); !ok || got != share {
			t.Errorf("share %d is read as %d, %v", share, got, ok)
		}
	}
}
