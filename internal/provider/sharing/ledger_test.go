package sharing

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestNew(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	words := make([]uint64, Size(1)/8+1)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	size := Size(1)
	for name, c := range map[string]struct {
		memory []byte
		own    int
		ok     bool
	}{
		"first share":  {memory[:size], 0, true},
		"last share":   {memory[:size], Max - 1, true},
		"too short":    {memory[:size-1], 0, false},
		"misaligned":   {memory[1 : size+1], 0, false},
		"below shares": {memory[:size], -1, false},
		"above shares": {memory[:size], Max, false},
	} {
		l, err := New(c.memory, addresses[:1], c.own)
		if err == nil != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		for _, address := range addresses { // of the second it has no ports
			if share, ok := l.PortHolder(netip.AddrPortFrom(address, 1)); ok {
				t.Errorf("%s: share %d has a port that nobody took", name, share)
			}
		}
	}
}

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
	words := make([]uint64, Size(1)/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	var held, served atomic.Int32
	var ports [4]atomic.Int32
	var all sync.WaitGroup
	ledgers := make([]*Ledger, processes)
	for own := range ledgers {
		l, err := New(memory, []netip.Addr{address}, own)
		if err != nil {
			t.Fatal(err)
		}
		ledgers[own] = l
		all.Go(func() {
			for i := range rounds {
				if l.Take(PDs, 2, limit) {
					served.Add(1)
					if n := held.Add(2); n > limit {
						t.Errorf("%d are held", n)
					}
					held.Add(-2)
					l.Give(PDs, 2)
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
				l.UsePort(at, PortOfListener)
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
	if !dead.Take(PDs, limit, limit) || !dead.ClaimPort(netip.AddrPortFrom(address, 1)) {
		t.Fatal("something was left")
	}
	dead.Counters().Connect.Add(7)
	dead.Counters().Active.Add(1)
	ledgers[0].Clear(3)
	if !ledgers[0].Take(PDs, limit, limit) || len(ledgers[0].Ports()) != 0 {
		t.Error("the dead one still has something")
	}
	var connect, active uint64
	for c := range ledgers[0].AllCounters() {
		connect, active = connect+c.Connect.Load(), active+c.Active.Load()
	}
	if connect != 7 || active != 0 {
		t.Errorf("%d connections are counted, %d active", connect, active)
	}
}

// TestLedgerScribbled: what no process writes in the port table is nobody's.
func TestLedgerScribbled(t *testing.T) {
	for _, entry := range []uint32{0, 0x100, Max + 1, 0xFF, 0xFFFFFFFF} {
		if share, ok := holderOf(entry); ok {
			t.Errorf("%#x is share %d's", entry, share)
		}
	}
	for share := range Max {
		if got, ok := holderOf(portEntry(share, PortOfSharedEndpoint)); !ok || got != share {
			t.Errorf("share %d is read as %d, %v", share, got, ok)
		}
	}
}
