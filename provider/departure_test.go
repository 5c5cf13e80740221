package provider_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// A breakable carrier sends nothing more once it is broken.
type breakable struct {
	provider.Carrier
	broken bool
}

func (b *breakable) Send(flow roce.Flow, packets []roce.Packet) error {
	if b.broken {
		return errors.New("broken")
	}
	return b.Carrier.Send(flow, packets)
}

// TestBrokenCarrier: what a carrier will never send is not waited for.
func TestBrokenCarrier(t *testing.T) {
	var carriers []*breakable
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		carriers = append(carriers, &breakable{Carrier: cfg.Carrier})
		cfg.Carrier = carriers[len(carriers)-1]
	})
	client, _ := w.connect()
	carriers[0].broken = true
	before := w.clock.Now()
	w.want(client.qp.Write(nil, client.at(0, 100_000), base, 1, 0), success)
	client.result(provider.StatusCancelled)
	w.clock.Run(0)
	if client.disconnected != 1 || w.clock.Now() != before {
		t.Errorf("%d disconnect events after %v", client.disconnected, w.clock.Now()-before)
	}
	carriers[0].broken = false
}

// TestBusy counts the queue pairs whose peer owes an answer: they share what the
// receive buffers hold.
func TestBusy(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	first := client.qp
	w.rejoin()
	check := func(want int) {
		t.Helper()
		if got := client.device.Busy(); got != want {
			t.Fatalf("%d are busy, want %d", got, want)
		}
	}
	write := func(qp *provider.QP) {
		t.Helper()
		w.want(qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
	}
	check(0)
	write(first)
	check(1)
	write(client.qp)
	check(2)
	write(first)
	check(2)
	client.results(3)
	check(0)
	w.path.Down = true
	write(client.qp)
	w.clock.Run(time.Millisecond)
	check(1)
	client.qp.Flush()
	check(0)
	client.results(1)
}
