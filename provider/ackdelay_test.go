package provider_test

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// TestAckDelay: an active end does not send again before a peer's REP says that
// it could have answered.
func TestAckDelay(t *testing.T) {
	for _, test := range []struct {
		name  string
		delay mad.Timeout
		want  bool // again within 100 ms
	}{
		{"a peer of our kind", 0, true},
		{"134 ms, as Linux announces", 15, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, gates := newGatedWorld(t)
			gates[0].change = func(p *roce.Received) {
				var reply mad.REP
				if reply.Decode(p.Payload) == nil {
					reply.TargetAckDelay = test.delay
					p.Payload = reply.Append(nil)
				}
			}
			client, server := w.connect()
			gates[0].change = nil
			server.receive(1)
			gates[1].keep = true
			w.want(client.qp.Send(nil, nil, 0), success)
			w.clock.Run(100 * time.Millisecond)
			if got := len(gates[1].kept) > 1; got != test.want {
				t.Errorf("sent %d times in 100 ms", len(gates[1].kept))
			}
			w.clock.Run(100 * time.Millisecond)
			if len(gates[1].kept) < 2 {
				t.Error("not sent again in 200 ms")
			}
			gates[1].open()
			client.result(success)
		})
	}
}

// TestForeignAckDelay: neither does a passive end send again before a client of
// another kind could have answered, which does not say how long that takes.
func TestForeignAckDelay(t *testing.T) {
	for _, test := range []struct {
		name    string
		foreign bool
		want    bool // again within 100 ms
	}{
		{"a peer of our kind", false, true},
		{"another", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var gates []*gate
			w := newWorldWith(t, addresses, func(cfg *provider.Config) {
				gates = append(gates, &gate{Carrier: cfg.Carrier})
				cfg.Carrier = gates[len(gates)-1]
				cfg.GoBackN = test.foreign // then it offers nothing
			})
			client, server := w.connect()
			client.receive(1)
			gates[0].keep = true
			w.want(server.qp.Send(nil, nil, 0), success)
			w.clock.Run(100 * time.Millisecond)
			if got := len(gates[0].kept) > 1; got != test.want {
				t.Errorf("sent %d times in 100 ms", len(gates[0].kept))
			}
			w.clock.Run(100 * time.Millisecond)
			if len(gates[0].kept) < 2 {
				t.Error("not sent again in 200 ms")
			}
			gates[0].open()
			server.result(success)
		})
	}
}

// TestUnmanagedAckDelay: nor does an end that has not seen any handshake.
func TestUnmanagedAckDelay(t *testing.T) {
	w, gates := newGatedWorld(t)
	a, b := w.hosts[0], w.hosts[1]
	u := a.unmanaged(b)
	u.AckTimeout = 17 // 537 ms
	a.enter(u)
	b.enter(b.unmanaged(a))
	b.receive(1)
	gates[1].keep = true
	w.want(a.qp.Send(nil, nil, 0), success)
	w.clock.Run(100 * time.Millisecond)
	if n := len(gates[1].kept); n != 1 {
		t.Errorf("sent %d times in 100 ms", n)
	}
	w.clock.Run(100 * time.Millisecond)
	if len(gates[1].kept) < 2 {
		t.Error("not sent again in 200 ms")
	}
	gates[1].open()
	a.result(success)
}
