package provider_test

import (
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/provider"
)

// newLedgerWorld makes a world whose two devices have one ledger in common, as
// those of two processes that share an adapter have.
func newLedgerWorld(t *testing.T, change func(*provider.Config)) *world {
	t.Helper()
	all := []netip.Addr{addresses[0], addresses[1], sharedAddress}
	words := make([]uint64, sharing.Size(len(all))/8+1)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	own := 0
	return newWorldWith(t, addresses, func(cfg *provider.Config) {
		ledger, err := sharing.New(memory, all, own)
		if err != nil {
			t.Fatal(err)
		}
		own++
		cfg.Share = &sharing.Config{Ledger: ledger}
		cfg.Carrier = &bothCarrier{cfg.Carrier}
		if change != nil {
			change(cfg)
		}
	})
}

// sharedAddress is one that both devices of a ledger world have.
var sharedAddress = netip.MustParseAddr("10.0.0.3")

// A bothCarrier has sharedAddress, too.
type bothCarrier struct{ provider.Carrier }

func (c *bothCarrier) Addresses() []netip.Addr { return append(c.Carrier.Addresses(), sharedAddress) }

func TestLedgerInCommon(t *testing.T) {
	t.Run("NDK-CAP-02 the read limits are of all processes together", func(t *testing.T) {
		w := newLedgerWorld(t, func(cfg *provider.Config) {
			cfg.Capabilities.MaxInboundReadLimit, cfg.Capabilities.MaxOutboundReadLimit = 20, 1000
		})
		a, b := w.couple(w.hosts[0], w.hosts[1], 7000)
		w.limits(t, "client", a.conn, 16, 4)
		w.limits(t, "server", b.conn, 4, 16)
		w.finish(a.close(a.conn))
		w.finish(b.close(b.conn))
		a, b = w.couple(w.hosts[1], w.hosts[0], 7001)
		w.limits(t, "client", a.conn, 16, 4)
		w.limits(t, "server", b.conn, 4, 16)
	})
	t.Run("NDK-LSN-04 NDK-EP-11 NDK-CONN-14 a port of another process", func(t *testing.T) {
		w := newLedgerWorld(t, nil)
		l := track(w.hosts[0], must(w.hosts[0].CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
		at := netip.AddrPortFrom(sharedAddress, 7000)
		w.want(l.Listen(at, nil, nil), success)
		w.hosts[1].taken(at, nowhere)
		w.finish(w.hosts[0].close(l))
		w.hosts[1].free(at)
	})
	t.Run("what a process had that is gone is free, and nothing else", func(t *testing.T) {
		var ledgers []*sharing.Ledger
		w := newLedgerWorld(t, func(cfg *provider.Config) { ledgers = append(ledgers, cfg.Share.Ledger) })
		for i, h := range w.hosts {
			l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
			w.want(l.Listen(netip.AddrPortFrom(sharedAddress, uint16(7000+i)), nil, nil), success)
		}
		check := func(want ...sharing.HeldPort) {
			t.Helper()
			if got := ledgers[0].Ports(); !slices.Equal(got, want) {
				t.Errorf("ports in use: %v, want %v", got, want)
			}
		}
		first := sharing.HeldPort{Address: netip.AddrPortFrom(sharedAddress, 7000), Share: 0, Use: sharing.PortOfListener}
		check(first, sharing.HeldPort{Address: netip.AddrPortFrom(sharedAddress, 7001), Share: 1, Use: sharing.PortOfListener})
		ledgers[0].Clear(5)
		used := w.hosts[0].device.Usage()
		ledgers[0].Clear(1)
		check(first)
		if got, all := w.hosts[0].device.Usage(), used; got.Qps != all.Qps/2 || got.Cqs != all.Cqs/2 || got.Mrs != all.Mrs/2 {
			t.Errorf("in use: %+v, was %+v", got, all)
		}
	})
	t.Run("NDK-LSN-03 any port that no process has", func(t *testing.T) {
		w := newLedgerWorld(t, nil)
		any := netip.AddrPortFrom(sharedAddress, 0)
		var taken []*provider.SharedEndpoint
		for {
			s, status := w.hosts[0].CreateSharedEndpoint(any, nil, nil)
			if status != success {
				w.want(status, provider.StatusTooManyAddresses)
				break
			}
			taken = append(taken, s)
		}
		_, status := w.hosts[1].CreateSharedEndpoint(any, nil, nil)
		w.want(status, provider.StatusTooManyAddresses)
		free := taken[1000].LocalAddress()
		w.want(taken[1000].Close(nil, nil), success)
		if got := w.hosts[1].share(any).LocalAddress(); got != free {
			t.Errorf("chose %v, but only %v is free", got, free)
		}
		for i, s := range taken {
			if i != 1000 {
				s.Close(nil, nil)
			}
		}
	})
}
