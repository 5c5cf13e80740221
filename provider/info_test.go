package provider_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

func TestQueryAdapterInfo(t *testing.T) {
	w := newWorld(t)
	a := w.hosts[0].Adapter
	t.Run("NDK-INFO-01 NDK-INFO-03 room enough", func(t *testing.T) {
		for _, given := range []uint32{104, 105, 1 << 31} {
			var info provider.AdapterInfo
			size := given
			w.want(a.QueryAdapterInfo(&info, &size), success)
			if size != 104 || info != provider.DefaultAdapterInfo() || info.FRMRPageCount < 16 {
				t.Errorf("%d bytes written of %+v", size, info)
			}
		}
	})
	t.Run("NDK-INFO-02 too small", func(t *testing.T) {
		for _, given := range []uint32{0, 1, 103} {
			var info provider.AdapterInfo
			size := given
			w.want(a.QueryAdapterInfo(&info, &size), provider.StatusBufferTooSmall)
			if size != 104 || (info != provider.AdapterInfo{}) {
				t.Errorf("needs %d bytes; wrote %+v", size, info)
			}
		}
		for _, size := range []uint32{0, 104} { // with 0 a consumer asks for the size
			w.want(a.QueryAdapterInfo(nil, &size), provider.StatusBufferTooSmall)
			if size != 104 {
				t.Errorf("needs %d bytes", size)
			}
		}
	})
	t.Run("NDK-INFO-03 FRMRs of fewer than 16 pages", func(t *testing.T) {
		cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
		fails(t, cfg, func(c *provider.Config) { c.Info.FRMRPageCount = 15 }, "FRMRPageCount")
	})
}

// TestInOrderDMA: whatever the path does to the packets, what arrives for a
// buffer appears there from its beginning on, each byte once.
func TestInOrderDMA(t *testing.T) {
	const size = 300_001 // 74 packets
	for name, start := range map[string]func(w *world, client, server *host) (observed []byte){
		"of a WRITE": func(w *world, client, server *host) []byte {
			w.want(client.qp.Write(nil, client.at(0, size), base, server.mr.RemoteToken(), 0), success)
			return server.memory
		},
		"of a SEND": func(w *world, client, server *host) []byte {
			w.want(server.qp.Receive(nil, server.at(0, size)), success)
			w.want(client.qp.Send(nil, client.at(0, size), 0), success)
			return server.memory
		},
		"of a READ": func(w *world, client, server *host) []byte {
			w.want(server.qp.Read(nil, server.at(0, size), base, client.mr.RemoteToken(), 0), success)
			return server.memory
		},
	} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("NDK-INFO-06 bytes %s, %d", name, seed), func(t *testing.T) {
				// Bytes that were kept behind a gap are placed in one step when the gap closes.
				goBackN, least := seed%2 == 0, 5
				if goBackN {
					least = 50
				}
				w := newWorldWith(t, addresses, func(c *provider.Config) { c.GoBackN = goBackN })
				client, server := w.connect()
				if client.Info().AdapterFlags&provider.AdapterInOrderDMA == 0 {
					t.Fatal("not promised")
				}
				for i := range size {
					server.memory[i] = ^client.memory[i]
				}
				w.path.Rand = rand.New(rand.NewPCG(seed, 3))
				w.path.Loss, w.path.Reorder, w.path.Duplicate = 0.05, 0.05, 0.05
				observed, arrived, steps := start(w, client, server)[:size], 0, 0
				for limit := w.clock.Now() + time.Minute; arrived < size && w.clock.Now() < limit && w.clock.Step(); {
					before := arrived
					for arrived < size && observed[arrived] == client.memory[arrived] {
						arrived++
					}
					if arrived > before {
						steps++
					}
					// All that is behind is as it was; to look at two packets' worth
					// and one byte in each further packet is enough.
					for i := arrived; i < size; i++ {
						if observed[i] == client.memory[i] {
							t.Fatalf("byte %d has changed before byte %d", i, arrived)
						}
						if i > arrived+2*4096 {
							i += 1000
						}
					}
				}
				if arrived < size || steps < least {
					t.Fatalf("%d bytes arrived in %d steps", arrived, steps)
				}
				w.path.Loss, w.path.Reorder, w.path.Duplicate = 0, 0, 0
				w.settle()
			})
		}
	}
}

func TestNoLoopback(t *testing.T) {
	for name, addresses := range map[string][2]netip.Addr{"IPv4": addresses, "IPv6": addresses6} {
		t.Run(name, func(t *testing.T) {
			info := provider.DefaultAdapterInfo()
			info.AdapterFlags &^= provider.AdapterLoopbackConnections
			w := newWorldOf(t, addresses, info)
			h := w.hosts[0]
			h.listen(func(*provider.Connector) { t.Error("delivered") })
			c := h.newConnector()
			w.want(h.dial(c, h).returned, provider.StatusHostUnreachable)
			w.settle()
			if got := h.device.Counters(); got.ConnectFailure != 1 { // as of anything that is not reached
				t.Errorf("got %+v", got)
			}
			// Others are reached, by the same connector and QP.
			w.hosts[1].listen(func(c *provider.Connector) { w.hosts[1].accept(c) })
			w.want(w.finish(h.dial(c, w.hosts[1])), success)
		})
	}
}

func TestCapabilities(t *testing.T) {
	t.Run("NDK-CAP-01 headers", func(t *testing.T) {
		w := newWorld(t)
		m := w.hosts[0].device
		c := m.Attributes().Capabilities
		if (c.Header != provider.NDISHeader{Type: 0x80, Revision: 1, Size: 56}) || c.Flags != 0 || c.NdkInfo == nil {
			t.Fatalf("got %+v", c)
		}
		if *c.NdkInfo != provider.DefaultAdapterInfo() || c.Capabilities != provider.DefaultCapabilities() {
			t.Errorf("got %+v, %+v", c.Capabilities, *c.NdkInfo)
		}
		c.NdkInfo.MaxCqDepth = 1 // the caller's own
		if w.hosts[0].Info().MaxCqDepth == 1 {
			t.Error("what is reported can be changed")
		}
	})
	t.Run("NDK-CAP-04 SRQs or none", func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
		fails(t, cfg, func(c *provider.Config) { c.Info.MaxSrqDepth = 0 }, "MaxSrqCount")
		fails(t, cfg, func(c *provider.Config) { c.Capabilities.MaxSrqCount = 0 }, "MaxSrqCount")
		cfg.Info.MaxSrqDepth, cfg.Capabilities.MaxSrqCount = 0, 0
		m := w.start(cfg)
		if c := m.Attributes().Capabilities; c.MaxSrqCount != 0 || c.NdkInfo.MaxSrqDepth != 0 {
			t.Errorf("got %+v", c)
		}
		if c := w.hosts[0].device.Attributes().Capabilities; c.MaxSrqCount == 0 || c.NdkInfo.MaxSrqDepth == 0 {
			t.Errorf("got %+v", c)
		}
		m.BeginClose(func() {})
	})
}

// TestMaxTransferLength: the limit is on all pieces of a request together.
func TestMaxTransferLength(t *testing.T) {
	info := provider.DefaultAdapterInfo()
	info.MaxTransferLength = 1000
	w := newWorldOf(t, addresses, info)
	client, server := w.connect()
	token := server.mr.RemoteToken()
	for name, post := range map[string]func([]provider.SGE) provider.Status{
		"Send":  func(sgl []provider.SGE) provider.Status { return client.qp.Send(nil, sgl, 0) },
		"Write": func(sgl []provider.SGE) provider.Status { return client.qp.Write(nil, sgl, base, token, 0) },
		"Read":  func(sgl []provider.SGE) provider.Status { return client.qp.Read(nil, sgl, base, token, 0) },
	} {
		w.want(server.qp.Receive(nil, server.at(0, 1000)), success)
		if got := post(append(client.at(0, 600), client.at(600, 401)...)); got != overflow {
			t.Errorf("%s of one byte too many: %v", name, got)
		}
		if got := post(append(client.at(0, 600), client.at(600, 400)...)); got != success {
			t.Errorf("%s of as much as there may be: %v", name, got)
		}
		client.result(success)
	}
	w.want(server.qp.Receive(nil, server.at(0, 1001)), overflow)
}
