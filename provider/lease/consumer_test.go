package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// A consumer is an instance of a device with what it takes to exchange messages.
type consumer struct {
	adapter *provider.Adapter
	pd      *provider.PD
	cq      *await.CQ
	qp      *provider.QP
	mr      *provider.MR
	memory  []byte
	conn    *provider.Connector

	disconnected chan time.Time
}

func newConsumer(device *provider.Miniport) (*consumer, error) {
	c := &consumer{memory: make([]byte, 8192), disconnected: make(chan time.Time, 1)}
	var status provider.Status
	if c.adapter, status = device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion}); status != provider.StatusSuccess {
		return nil, status
	}
	if c.pd, status = c.adapter.CreatePD(nil, nil); status != provider.StatusSuccess {
		return nil, status
	}
	var err error
	if c.cq, err = await.NewCQ(c.adapter, 16); err != nil {
		return nil, err
	}
	if c.qp, err = c.newQP(); err != nil {
		return nil, err
	}
	if c.mr, status = c.pd.CreateMR(false, nil, nil); status != provider.StatusSuccess {
		return nil, status
	}
	status = c.mr.Register(&provider.MDL{Bytes: c.memory}, uint64(len(c.memory)), provider.MRAllowLocalWrite, nil, nil)
	if status != provider.StatusSuccess {
		return nil, status
	}
	return c, nil
}

func (c *consumer) newQP() (*provider.QP, error) {
	qp, status := c.pd.CreateQP(c.cq.CQ, c.cq.CQ, nil, 8, 8, 1, 1, 64, nil, nil)
	if status != provider.StatusSuccess {
		return nil, status
	}
	return qp, nil
}

func (c *consumer) options() await.Options {
	return await.Options{Disconnected: func() { c.disconnected <- time.Now() }}
}

func (c *consumer) dial(ctx context.Context, local netip.Addr, remote netip.AddrPort) (err error) {
	c.conn, err = await.Dial(ctx, c.adapter, c.qp, local, remote, c.options())
	return err
}

func (c *consumer) accept(ctx context.Context, l *await.RequestListener) (err error) {
	if c.conn, err = l.Next(ctx); err != nil {
		return err
	}
	return await.Accept(ctx, c.conn, c.qp, c.options())
}

// half is a half of the memory: the first is sent, the second received.
func (c *consumer) half(i int) []provider.SGE {
	return []provider.SGE{{VirtualAddress: uint64(i) * 4096, Length: 4096, MemoryRegionToken: c.mr.LocalToken()}}
}

// exchange sends a message filled with one byte, and returns the byte that the
// peer's message is filled with.
func (c *consumer) exchange(ctx context.Context, fill byte) (byte, error) {
	copy(c.memory, bytes.Repeat([]byte{fill}, 4096))
	if status := c.qp.Send(nil, c.half(0), 0); status != provider.StatusSuccess {
		return 0, status
	}
	for range 2 {
		if _, err := c.cq.One(ctx); err != nil {
			return 0, err
		}
	}
	if got := c.memory[4096:]; !bytes.Equal(got, bytes.Repeat(got[:1], 4096)) {
		return 0, fmt.Errorf("the message is not whole: % x ...", got[:16])
	}
	return c.memory[4096], nil
}

// ready posts the receive that exchange waits for.
func (c *consumer) ready() error {
	if status := c.qp.Receive(nil, c.half(1)); status != provider.StatusSuccess {
		return status
	}
	return nil
}

// close closes everything that it has.
func (c *consumer) close(ctx context.Context) error {
	for _, o := range []provider.Object{c.conn, c.qp, c.cq.CQ, c.mr, c.pd} {
		if o == provider.Object((*provider.Connector)(nil)) {
			continue
		}
		if err := await.Close(ctx, o); err != nil {
			return err
		}
	}
	c.adapter.Close()
	return nil
}

// consuming makes a consumer for the test.
func consuming(t *testing.T, device *provider.Miniport) *consumer {
	t.Helper()
	c, err := newConsumer(device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(patient(t)); err != nil {
			t.Error(err)
		}
	})
	if err := c.ready(); err != nil {
		t.Fatal(err)
	}
	return c
}

// listening has a consumer's instance listen for the test.
func listening(t *testing.T, c *consumer, at netip.AddrPort) *await.RequestListener {
	t.Helper()
	l, err := await.Listen(patient(t), c.adapter, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.conn != nil {
			if err := await.Close(patient(t), c.conn); err != nil {
				t.Error(err)
			}
			c.conn = nil
		}
		if err := l.Close(patient(t)); err != nil {
			t.Error(err)
		}
	})
	return l
}

// join connects two consumers and has them exchange messages.
func join(t *testing.T, client *consumer, local netip.Addr, server *consumer, l *await.RequestListener) {
	t.Helper()
	ctx := patient(t)
	remote, err := l.Address()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		err := server.accept(ctx, l)
		if err == nil {
			err = expect(server.exchange(ctx, 's'))('c')
		}
		accepted <- err
	}()
	if err := client.dial(ctx, local, remote); err != nil {
		t.Fatal(err)
	}
	if err := expect(client.exchange(ctx, 'c'))('s'); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
}

func expect(got byte, err error) func(want byte) error {
	return func(want byte) error {
		if err == nil && got != want {
			err = fmt.Errorf("got a message of %q, want %q", got, want)
		}
		return err
	}
}

// runProgram runs one of the programs of processes that open the device.
func runProgram(name string, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch name {
	case "dial": // from args[0] to args[1], and wait to be killed
		c, err := opening(ctx)
		if err != nil {
			return err
		}
		if err := c.dial(ctx, netip.MustParseAddr(args[0]), netip.MustParseAddrPort(args[1])); err != nil {
			return err
		}
		if err := expect(c.exchange(ctx, 'c'))('s'); err != nil {
			return err
		}
		fmt.Println("connected")
		<-ctx.Done()
	case "listen": // at args[0], and be killed with a connection
		c, err := opening(ctx)
		if err != nil {
			return err
		}
		l, err := await.Listen(ctx, c.adapter, netip.AddrPortFrom(netip.MustParseAddr(args[0]), 0))
		if err != nil {
			return err
		}
		address, err := l.Address()
		if err != nil {
			return err
		}
		fmt.Println(address)
		if err := c.accept(ctx, l); err != nil {
			return err
		}
		if err := expect(c.exchange(ctx, 's'))('c'); err != nil {
			return err
		}
		<-ctx.Done()
	case "busy": // open, connect to args[1], close, without end
		fmt.Println("busy")
		for ctx.Err() == nil {
			if err := busy(ctx, netip.MustParseAddr(args[0]), netip.MustParseAddrPort(args[1])); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("no program %q", name)
	}
	return nil
}

func opening(ctx context.Context) (*consumer, error) {
	device, err := Open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := newConsumer(device)
	if err != nil {
		return nil, err
	}
	return c, c.ready()
}

func busy(ctx context.Context, local netip.Addr, remote netip.AddrPort) error {
	device, err := Open(ctx)
	if err != nil {
		return err
	}
	for range 10 {
		c, err := newConsumer(device)
		if err != nil {
			return err
		}
		l, err := await.Listen(ctx, c.adapter, netip.AddrPortFrom(local, 0))
		if err != nil {
			return err
		}
		if err := c.dial(ctx, local, remote); err != nil && !errors.Is(err, provider.StatusConnectionRefused) {
			return err
		}
		if err := l.Close(ctx); err != nil {
			return err
		}
		if err := c.close(ctx); err != nil {
			return err
		}
	}
	device.Close()
	return nil
}
