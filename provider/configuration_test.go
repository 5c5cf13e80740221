package provider_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
)

// uneven is a carrier whose addresses are on interfaces with MTUs of their own.
type uneven struct {
	*sim.Carrier
	mtus map[netip.Addr]int
}

func (u *uneven) MTU(local netip.Addr) int { return u.mtus[local] }

// largestPayload connects from one device to the other, writes more than one
// packet holds and returns the largest payload on the wire.
func (w *world) largestPayload(from, to *host) int {
	w.t.Helper()
	w.join(from, to)
	largest := 0
	w.network.Tap(func(_ time.Duration, packet []byte) {
		var p roce.Received
		var v roce.Verifier
		if err := v.DecodeIP(packet, &p); err != nil {
			w.t.Fatal(err)
		}
		largest = max(largest, len(p.Payload))
	})
	w.want(from.qp.Write(nil, from.at(0, 10000), base, to.mr.RemoteToken(), 0), success)
	from.result(success)
	return largest
}

// TestNoLog: a device that could not have its frame size need not tell anybody.
func TestNoLog(t *testing.T) {
	newWorldWith(t, addresses, func(cfg *provider.Config) {
		cfg.Carrier = narrow{cfg.Carrier}
		cfg.Configuration.NetworkDirectRoCEFrameSize = 4096
	})
}

// A narrow carrier has a small MTU.
type narrow struct{ provider.Carrier }

func (narrow) MTU(netip.Addr) int { return 1500 }

func TestConfiguration(t *testing.T) {
	t.Run("NDK-CFG-01 NDK-INFO-08 nothing is set", func(t *testing.T) {
		w := newWorld(t)
		var hosts []*host
		for _, address := range []string{"10.0.0.3", "10.0.0.4"} {
			a := netip.MustParseAddr(address)
			cfg := w.config(w.network.Attach(mtu, a))
			cfg.Configuration = nil
			m := w.start(cfg)
			want := provider.Configuration{NetworkDirect: 1, NetworkDirectTechnology: provider.RoCEv2, NetworkDirectRoCEFrameSize: 1024}
			if got := m.Configuration(); got != want || got != provider.DefaultConfiguration() {
				t.Errorf("got %+v", got)
			}
			h := w.equip(m, a)
			if info := h.Info(); info.RdmaTechnology != want.NetworkDirectTechnology || info.RdmaTechnology != 4 {
				t.Errorf("technology %v", info.RdmaTechnology)
			}
			if !m.Attributes().Enabled {
				t.Error("not enabled")
			}
			hosts = append(hosts, h)
		}
		if got := w.largestPayload(hosts[0], hosts[1]); got != 1024 {
			t.Errorf("payloads of %d bytes", got)
		}
		w.finishAll(hosts)
	})
	// The jumbo packet is the interface's MTU here; 96 bytes of it are for headers.
	for _, c := range []struct {
		mtu        int
		configured uint32
		want       int
	}{
		{4200, 256, 256}, {4200, 512, 512}, {4200, 1024, 1024}, {4200, 2048, 2048}, {4200, 4096, 4096}, {4200, 0, 4096},
		{4191, 4096, 2048}, {4191, 0, 2048}, {1500, 4096, 1024}, {1500, 2048, 1024}, {1500, 1024, 1024}, {1500, 0, 1024}, {1500, 256, 256},
		{1119, 1024, 512}, {400, 1024, 256},
	} {
		t.Run(fmt.Sprintf("NDK-CFG-02 NDK-CFG-03 %d on an interface with %d", c.configured, c.mtu), func(t *testing.T) {
			w := newWorld(t)
			var hosts []*host
			var logged []string
			for _, address := range []string{"10.0.0.3", "10.0.0.4"} {
				a := netip.MustParseAddr(address)
				cfg := w.config(w.network.Attach(c.mtu, a))
				cfg.Configuration.NetworkDirectRoCEFrameSize = c.configured
				cfg.Log = func(message string) { logged = append(logged, message) }
				hosts = append(hosts, w.equip(w.start(cfg), a))
			}
			if got := w.largestPayload(hosts[0], hosts[1]); got != c.want {
				t.Errorf("payloads of %d bytes, want %d", got, c.want)
			}
			if c.configured == 0 || c.want == int(c.configured) {
				if len(logged) > 0 {
					t.Errorf("logged %q", logged)
				}
			} else if len(logged) != 2 || !strings.Contains(logged[0], fmt.Sprintf("10.0.0.3: the active RoCE MTU is %d", c.want)) {
				t.Errorf("logged %q", logged)
			}
			w.finishAll(hosts)
		})
	}
	t.Run("NDK-CFG-03 each address of several", func(t *testing.T) {
		w := newWorld(t)
		var logged []string
		first, second, wide := netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fd00::3"), netip.MustParseAddr("10.0.0.4")
		carrier := &uneven{w.network.Attach(mtu, first, second, wide), map[netip.Addr]int{first: 1500, second: 400, wide: mtu}}
		cfg := w.config(carrier)
		cfg.Configuration.NetworkDirectRoCEFrameSize = 2048
		cfg.Log = func(message string) { logged = append(logged, message) }
		m := w.start(cfg)
		if len(logged) != 2 || !strings.HasPrefix(logged[0], "10.0.0.3: the active RoCE MTU is 1024 ") ||
			!strings.HasPrefix(logged[1], "fd00::3: the active RoCE MTU is 256 ") {
			t.Errorf("logged %q", logged)
		}
		w.endWith(m)
	})
	t.Run("ends with different frame sizes", func(t *testing.T) {
		// The larger one asks first for its own, is told the other's and asks for
		// that; the smaller one asks for what suits both.
		for _, sizes := range [][2]uint32{{4096, 512}, {512, 4096}} {
			w := newWorld(t)
			var hosts []*host
			for i, address := range []string{"10.0.0.3", "10.0.0.4"} {
				a := netip.MustParseAddr(address)
				cfg := w.config(w.network.Attach(mtu, a))
				cfg.Configuration.NetworkDirectRoCEFrameSize = sizes[i]
				hosts = append(hosts, w.equip(w.start(cfg), a))
			}
			if got := w.largestPayload(hosts[0], hosts[1]); got != 512 {
				t.Errorf("payloads of %d bytes with %v", got, sizes)
			}
			w.want(hosts[1].qp.Write(nil, hosts[1].at(0, 10000), base, hosts[0].mr.RemoteToken(), 0), success)
			hosts[1].result(success)
			for _, h := range hosts {
				if c := h.device.Counters(); c.ConnectFailure != 0 || c.ActiveConnection != 1 {
					t.Errorf("got %+v", c)
				}
			}
			w.finishAll(hosts)
		}
	})
	t.Run("what cannot be", func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
		for _, size := range []uint32{1, 128, 1023, 8192} {
			bad := *cfg.Configuration
			bad.NetworkDirectRoCEFrameSize = size
			fails(t, cfg, func(c *provider.Config) { c.Configuration = &bad }, "NetworkDirectRoCEFrameSize")
		}
		for _, technology := range []provider.RDMATechnology{0, 1, 2, 3, 5} {
			bad := *cfg.Configuration
			bad.NetworkDirectTechnology = technology
			fails(t, cfg, func(c *provider.Config) { c.Configuration = &bad }, "NetworkDirectTechnology")
			fails(t, cfg, func(c *provider.Config) { c.Info.RdmaTechnology = technology }, "RdmaTechnology")
		}
		fails(t, cfg, func(c *provider.Config) { c.Info.AdapterFlags |= 0x20 }, "AdapterFlags 0x20")
	})
}

// fails fails the test unless a configuration, with a change, is refused with an
// error that says why.
func fails(t *testing.T, cfg provider.Config, change func(*provider.Config), why string) {
	t.Helper()
	change(&cfg)
	if _, err := provider.NewMiniport(cfg); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want an error about %s", err, why)
	}
}

// finishAll ends hosts that are not the world's own.
func (w *world) finishAll(hosts []*host) {
	w.t.Helper()
	ended := make([]bool, len(hosts))
	for i, h := range hosts {
		h.endAll(func() { ended[i] = true })
		for len(*h.open) > 0 {
			h.close((*h.open)[0])
		}
	}
	w.wait("the end of devices", func() bool { return !slices.Contains(ended, false) })
}

// A refuser is a peer that refuses every request for its MTU.
type refuser struct {
	carrier provider.Carrier
	mtu     uint8 // code that it names
	asked   []uint8
}

func (r *refuser) Receive(packets []roce.Received) {
	for i := range packets {
		var q mad.REQ
		if q.Decode(packets[i].Payload) != nil {
			continue
		}
		r.asked = append(r.asked, q.MTU)
		refusal := mad.REJ{TransactionID: q.TransactionID, RemoteID: q.LocalID, Message: mad.MessageREQ,
			Reason: mad.ReasonInvalidMTU, ARILength: 1, ARI: [72]byte{r.mtu}}
		flow := roce.Flow{Local: packets[i].Flow.Local, Remote: packets[i].Flow.Remote, SourcePort: 0xC000}
		if err := r.carrier.Send(flow, []roce.Packet{{
			Header:  roce.Header{Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: mad.QPN, QKey: mad.QKey, SourceQPN: mad.QPN},
			Payload: [][]byte{refusal.Append(nil)},
		}}); err != nil {
			panic(err)
		}
	}
}

// TestRefusedMTU: a connector asks for what a peer names, if that is less, and not
// for ever.
func TestRefusedMTU(t *testing.T) {
	for named, asked := range map[uint8][]uint8{0: {5}, 1: {5, 1}, 4: {5, 4}, 5: {5}, 6: {5}, 255: {5}} {
		t.Run(fmt.Sprintf("naming %d", named), func(t *testing.T) {
			w := newWorld(t)
			peer := &refuser{carrier: w.network.Attach(mtu, nowhere.Addr()), mtu: named}
			peer.carrier.Listen(peer)
			h := w.hosts[0]
			c := h.newConnector()
			w.want(w.finish(h.dialFrom(c, h.qp, h.ephemeral(), nowhere)), provider.StatusConnectionRefused)
			if !slices.Equal(peer.asked, asked) {
				t.Errorf("asked for %v, want %v", peer.asked, asked)
			}
			if got := h.device.Counters().ConnectFailure; got != 1 {
				t.Errorf("%d failures were counted", got)
			}
		})
	}
}

// An echo is a path on which a copy of the first packet comes later than all that
// follows from it.
type echo struct {
	sim.Path
	sent int
}

func (e *echo) Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration {
	delays := e.Path.Carry(now, from, to, packet)
	if e.sent++; e.sent == 1 {
		delays = append(delays, 100*time.Microsecond)
	}
	return delays
}

// TestRefusedMTULate: a copy of the request that was refused for its MTU does not
// end the connection that was then asked for.
func TestRefusedMTULate(t *testing.T) {
	w := newEmptyWorld(t)
	w.network = sim.NewNetwork(w.clock, &echo{Path: w.path})
	for i, size := range []uint32{4096, 1024} {
		cfg := w.config(w.network.Attach(mtu, addresses[i]))
		cfg.Configuration.NetworkDirectRoCEFrameSize = size
		w.hosts[i] = w.equip(w.start(cfg), addresses[i])
	}
	client, server := w.hosts[0], w.hosts[1]
	var accepted *async
	server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
	client.conn = client.newConnector()
	w.want(w.finish(client.dial(client.conn, server)), provider.StatusSuccess)
	w.settle() // the consumer takes its time
	w.want(client.complete(), provider.StatusSuccess)
	w.want(w.finish(accepted), provider.StatusSuccess)
}
