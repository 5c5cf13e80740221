package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/udp"
)

// TestKilledAnywhere kills processes at random moments, while they open and close
// everything. Nothing may be left of them.
func TestKilledAnywhere(t *testing.T) {
	const (
		rounds = 12
		busy   = 3
		maxPDs = 2*busy + 1
	)
	cfg := config(1)
	cfg.Capabilities.MaxPdCount = maxPDs
	s := serving(t, cfg)
	server := consuming(t, peer(t))
	l := listening(t, server, netip.AddrPortFrom(theirs[0], 0))
	remote, err := l.Address()
	if err != nil {
		t.Fatal(err)
	}
	// Every other request is refused, and the rest accepted and soon forgotten.
	asked := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	go func() {
		for i := 0; ; i++ {
			c, err := l.Next(ctx)
			if err != nil {
				done <- nil
				return
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			if i%2 == 0 {
				c.Reject(nil)
				err = await.Close(context.Background(), c)
			} else {
				err = acceptOne(ctx, server, c)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		var programs []*program
		for range busy {
			p := start(t, "busy", ours[0].String(), remote.String())
			p.line(t)
			programs = append(programs, p)
		}
		for _, p := range programs {
			for range 1 + random.IntN(20) {
				select {
				case <-asked:
				case <-time.After(patience):
					t.Fatal("the programs do nothing")
				}
			}
			p.kill()
		}
		for _, p := range programs {
			s.awaitShares(t, uint32(p.Process.Pid))
		}
	}
	if left := s.ledger.Ports(); len(left) != 0 {
		t.Errorf("ports in use: %v", left)
	}
	if n := s.Device().Counters().ActiveConnection; n != 0 {
		t.Errorf("%d active connections", n)
	}
	a, status := s.Device().OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	defer a.Close()
	for i := range maxPDs {
		pd, status := a.CreatePD(nil, nil)
		if status != provider.StatusSuccess {
			t.Fatalf("of %d PDs only %d can be made: %v", maxPDs, i, status)
		}
		defer pd.Close(nil, nil)
	}
}

// acceptOne accepts a request with a queue pair of server's that it then closes.
func acceptOne(ctx context.Context, server *consumer, c *provider.Connector) error {
	qp, err := server.newQP()
	if err != nil {
		return err
	}
	err = await.Accept(ctx, c, qp, await.Options{})
	switch {
	case err == nil:
		err = await.Close(context.Background(), c)
	case errors.Is(err, provider.StatusConnectionAborted), ctx.Err() != nil:
		err = nil // the client was killed before it was connected, or the test is over
	}
	return errors.Join(err, await.Close(context.Background(), qp))
}

// TestState: what is set at the owner's device holds in all processes.
func TestState(t *testing.T) {
	s := serving(t, config(1))
	before := opened(t)
	events := make(chan provider.NetEvent, 8)
	defer before.Subscribe(func(e provider.NetEvent) { events <- e })()
	next := func(want provider.NetEventCode) provider.NetEvent {
		t.Helper()
		select {
		case e := <-events:
			if e.Code != want {
				t.Fatalf("event %v, want %v", e.Code, want)
			}
			return e
		case <-time.After(patience):
			t.Fatalf("no event %v", want)
		}
		panic("unreachable")
	}
	a, status := before.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	if status := s.Device().SetState(false); status != provider.StatusSuccess {
		t.Fatal(status)
	}
	disabled := next(provider.NetEventNDKDisable)
	select {
	case <-disabled.Done:
		t.Error("disabling is over although an instance is open")
	default:
	}
	after := opened(t) // and is told soon
	for {
		x, status := after.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
		if status != provider.StatusSuccess {
			break
		}
		x.Close()
	}
	a.Close()
	<-disabled.Done
	s.Device().SetState(true)
	next(provider.NetEventNDKEnable)

	s.Device().Fail()
	next(provider.NetEventNDKDisable)
	if !before.Failed() {
		t.Error("the owner's device failed, and a process's did not")
	}
	s.Device().Recover()
	next(provider.NetEventNDKEnable)
	if before.Failed() {
		t.Error("the owner's device has recovered, and a process's has not")
	}
}

// TestOwnerGone: without its owner a device fails.
func TestOwnerGone(t *testing.T) {
	s := serving(t, config(1))
	device := opened(t)
	failed := make(chan provider.NetEvent, 1)
	defer device.Subscribe(func(e provider.NetEvent) { failed <- e })()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-failed:
		if e.Code != provider.NetEventNDKDisable || !device.Failed() {
			t.Errorf("event %v, failed: %v", e.Code, device.Failed())
		}
	case <-time.After(patience):
		t.Fatal("the device does not fail")
	}
	if _, err := Open(patient(t)); err == nil {
		t.Error("the device can still be opened")
	}
}

// A reclaiming carrier says which shares are reclaimed.
type reclaiming struct {
	*udp.Carrier
	shares chan int
}

func (c *reclaiming) Reclaim(share int) error {
	err := c.Carrier.Reclaim(share)
	c.shares <- share
	return err
}

// TestReclaim: the sockets of a process that is gone take nothing more in.
func TestReclaim(t *testing.T) {
	carrier, err := udp.Open(udp.Config{Addresses: ours, ReceiveBuffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := &reclaiming{carrier, make(chan int, 1)}
	s, err := Serve(config(1), c)
	if err != nil {
		t.Fatal(err)
	}
	device, err := Open(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	device.Close()
	if share := <-c.shares; share != 1 {
		t.Errorf("share %d is reclaimed", share)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Device().Close()
}

// TestShortMemory: a ledger that does not fit is not mapped, since touching it
// would kill the process.
func TestShortMemory(t *testing.T) {
	f, err := newMemory(1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := openLedger(f, ours[:1], 1); err != nil {
		t.Error(err)
	}
	if _, err := openLedger(f, ours, 1); err == nil {
		t.Error("a ledger of two addresses is mapped from memory for one")
	}
	if err := f.Truncate(1); err == nil {
		t.Error("the memory can be made shorter")
	}
}

// TestForeignRecords: a process speaks for no connections but those of its share.
func TestForeignRecords(t *testing.T) {
	s := &Server{config: provider.Config{Capabilities: provider.DefaultCapabilities()}}
	h := &holder{server: s, share: 2, connections: map[cm.ID]cm.Record{}}
	own, others := cm.Record{ID: 2 << 26, State: cm.Connected}, cm.Record{ID: 3 << 26, State: cm.Connected}
	if err := h.recordConnection(own); err != nil {
		t.Error(err)
	}
	if err := h.recordConnection(others); err == nil {
		t.Error("the connection of another share is taken")
	}
	if len(h.connections) != 1 || h.connections[own.ID] != own {
		t.Errorf("on record: %v", h.connections)
	}
	own.State = cm.Closed
	if err := h.recordConnection(own); err != nil {
		t.Error(err)
	}
	if len(h.connections) != 0 {
		t.Errorf("on record: %v", h.connections)
	}
}
