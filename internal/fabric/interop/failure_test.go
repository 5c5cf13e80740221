package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// Programs in a node for what goes wrong:
//
//	reject ADDRESS:PORT     says "listening" and rejects one connection request
//	drain ADDRESS:PORT      says "listening", then serves one client of rping
//	                        badly: it READs the first buffer that is lent to it for
//	                        as long as it can, and says "read" every time. So
//	                        there is always a request in progress.
func init() {
	programs["reject"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		at, err := netip.ParseAddrPort(args[0])
		if err != nil {
			return err
		}
		listener, err := await.Listen(ctx, adapter, at)
		if err != nil {
			return err
		}
		defer listener.Close(ctx)
		fmt.Println("listening")
		connection, err := listener.Next(ctx)
		if err != nil {
			return err
		}
		defer connection.Close(nil, nil)
		if status := connection.Reject([]byte("not today")); status != provider.StatusSuccess {
			return fmt.Errorf("reject: %w", status)
		}
		return nil
	}
	programs["drain"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		at, err := netip.ParseAddrPort(args[0])
		if err != nil {
			return err
		}
		return drain(ctx, adapter, at)
	}
}

func drain(ctx context.Context, adapter *provider.Adapter, at netip.AddrPort) error {
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return err
	}
	defer pd.Close(nil, nil)
	qp, err := await.NewQP(ctx, adapter, pd, 1, 1)
	if err != nil {
		return err
	}
	defer qp.Close()
	const messageLen = 16 // address, token and size of a buffer (roce.md 16.1)
	memory, err := await.Register(ctx, pd, messageLen+65535, provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	defer memory.Close(nil, nil)
	if status := qp.Receive(nil, memory.SGL(0, messageLen)); status != provider.StatusSuccess {
		return status
	}
	listener, err := await.Listen(ctx, adapter, at)
	if err != nil {
		return err
	}
	defer listener.Close(ctx)
	fmt.Println("listening")
	connection, err := listener.Next(ctx)
	if err != nil {
		return err
	}
	defer connection.Close(nil, nil)
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	err = await.Accept(ctx, connection, qp.QP, await.Options{
		InboundReadLimit: 1, OutboundReadLimit: 1,
		Disconnected: func() { lost(errors.New("disconnected")) },
	})
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if _, err := qp.Received(ctx); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	address := binary.BigEndian.Uint64(memory.Bytes)
	token := binary.BigEndian.Uint32(memory.Bytes[8:])
	size := int(binary.BigEndian.Uint32(memory.Bytes[12:]))
	for {
		if _, err := qp.Done(ctx, qp.Read(nil, memory.SGL(messageLen, size), address, token, 0)); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		fmt.Println("read")
	}
}

// rejections: nobody listens, or the consumer does not want the connection, in
// both directions.
func (s *setting) rejections(t *testing.T) {
	for _, p := range s.pairs {
		t.Run("nobody listens at "+p.node.String(), func(t *testing.T) {
			const invalidServiceID = 8
			s.guestIsRejected(t, netip.AddrPortFrom(p.node, s.nextPort()), invalidServiceID)
		})
		t.Run("rejected by the consumer at "+p.node.String(), func(t *testing.T) {
			const consumerReject = 28
			at := netip.AddrPortFrom(p.node, s.nextPort())
			server := s.ours(t, "reject "+at.String())
			server.says(t, "listening")
			s.guestIsRejected(t, at, consumerReject)
			if err := server.wait(); err != nil {
				t.Error(err)
			}
		})
		t.Run("nobody listens at "+p.guest.String(), func(t *testing.T) {
			s.nodeIsRejected(t, netip.AddrPortFrom(p.guest, s.nextPort()))
		})
		t.Run("rejected by the consumer at "+p.guest.String(), func(t *testing.T) {
			at := netip.AddrPortFrom(p.guest, s.nextPort())
			// rdma_destroy_id of a request that nobody has decided on rejects it.
			server := s.guest.start(fmt.Sprintf(`python3 -c '
from pyverbs.cmid import CMID, AddrInfo
import pyverbs.cm_enums as cm
listener = CMID(creator=AddrInfo(src="%v", src_service="%d", port_space=cm.RDMA_PS_TCP, flags=cm.RAI_PASSIVE))
listener.listen()
listener.get_request().close()'`, at.Addr(), at.Port()))
			s.guest.listens(t, at)
			s.nodeIsRejected(t, at)
			if _, err := server(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (s *setting) guestIsRejected(t *testing.T, at netip.AddrPort, reason int) {
	t.Helper()
	_, err := s.guest.start(fmt.Sprintf("rping -c -a %v -p %d -C 1", at.Addr(), at.Port()))()
	if want := fmt.Sprintf("RDMA_CM_EVENT_REJECTED, error %d", reason); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("rping ends with %v, want %q", err, want)
	}
}

func (s *setting) nodeIsRejected(t *testing.T, at netip.AddrPort) {
	t.Helper()
	err := s.ours(t, fmt.Sprintf("rping-client %v 64 1", at)).wait()
	if err == nil || !strings.Contains(err.Error(), provider.StatusConnectionRefused.Error()) {
		t.Errorf("our client ends with %v, want %v", err, provider.StatusConnectionRefused)
	}
}

// giveUp is the time in which a requester of ours uses up its retries at the latest:
// 7 and the first try, of 2.147 s each, as rdma_cm of Linux 6.1 asks for (code 19).
// To that the tests add the time that a busy machine and an emulated guest may take
// to say so.
const (
	giveUp = 8 * 2147 * time.Millisecond
	slack  = 2 * time.Minute
)

// within waits for a program, or what else can be waited for, and makes sure that
// it ends before its requester must have given up.
func within(t *testing.T, who string, wait func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		t.Logf("%s ends after %v: %v", who, time.Since(began).Round(time.Millisecond), err)
		return err
	case <-time.After(giveUp + slack):
		t.Fatalf("%s has not ended after %v", who, giveUp+slack)
		return nil
	}
}

// works makes sure that new connections are made and used, both ways.
func (s *setting) works(t *testing.T) {
	s.exchange(t, 4097, 3)
}

// draining has our end READ from a client of rping's all the time, and returns
// when it does. The client's process ID is in the guest's file /tmp/PORT.
func (s *setting) draining(t *testing.T, p pair) (ours *running, done *count, guest func() (string, error), port uint16) {
	t.Helper()
	at := netip.AddrPortFrom(p.node, s.nextPort())
	ours = s.ours(t, "drain "+at.String())
	ours.says(t, "listening")
	guest = s.guest.start(fmt.Sprintf("echo $$ >/tmp/%d; exec rping -c -a %v -p %d -S 65535 -C 1", at.Port(), at.Addr(), at.Port()))
	done = ours.count()
	done.more(t, 3)
	return ours, done, guest, at.Port()
}

// A count is of the lines that a program says from now on.
type count struct {
	lines chan struct{} // one element for each
	total atomic.Int64
}

// count reads what a program says, so that it can go on.
func (p *running) count() *count {
	c := &count{lines: make(chan struct{}, 1)}
	go func() {
		defer close(c.lines)
		for {
			if _, err := p.out.ReadString('\n'); err != nil {
				return
			}
			c.total.Add(1)
			select {
			case c.lines <- struct{}{}:
			default: // there is one that nobody has taken
			}
		}
	}()
	return c
}

// more waits for so many more lines.
func (c *count) more(t *testing.T, n int64) {
	t.Helper()
	for want := c.total.Load() + n; c.total.Load() < want; {
		if _, more := <-c.lines; !more {
			t.Fatal("the program has ended")
		}
	}
}

// deaths: one end's process is killed in the middle of a transfer, and the other
// is told.
func (s *setting) deaths(t *testing.T) {
	p := s.pairs[0]
	t.Run("of the guest's client", func(t *testing.T) {
		ours, _, guest, port := s.draining(t, p)
		s.guest.run(t, fmt.Sprintf("kill -KILL $(cat /tmp/%d)", port))
		if within(t, "our server", ours.wait) == nil {
			t.Error("our server has no error")
		}
		_, _ = guest() // it was killed
		s.works(t)
	})
	t.Run("of our server", func(t *testing.T) {
		ours, _, guest, _ := s.draining(t, p)
		s.kill(t, ours)
		// Else it would wait for our answer for ever.
		_ = within(t, "the guest's client", func() error { _, err := guest(); return err })
		s.works(t)
	})
	t.Run("of the guest's server", func(t *testing.T) {
		at := netip.AddrPortFrom(p.guest, s.nextPort())
		guest := s.guest.start(fmt.Sprintf("echo $$ >/tmp/%d; exec rping -s -a %v -p %d -S 65535 -C 1000000", at.Port(), at.Addr(), at.Port()))
		s.guest.listens(t, at)
		ours := s.talking(t, at)
		s.guest.run(t, fmt.Sprintf("kill -KILL $(cat /tmp/%d)", at.Port()))
		if within(t, "our client", ours.wait) == nil {
			t.Error("our client has no error")
		}
		_, _ = guest() // it was killed
		s.works(t)
	})
	t.Run("of our client", func(t *testing.T) {
		at := netip.AddrPortFrom(p.guest, s.nextPort())
		guest := s.guest.start(fmt.Sprintf("rping -s -a %v -p %d -S 65535 -C 1000000", at.Addr(), at.Port()))
		s.guest.listens(t, at)
		s.kill(t, s.talking(t, at))
		// Else it would wait for our next message for ever.
		_ = within(t, "the guest's server", func() error { _, err := guest(); return err })
		s.works(t)
	})
}

// talking starts our client of rping and returns when it has done some rounds.
func (s *setting) talking(t *testing.T, at netip.AddrPort) *running {
	t.Helper()
	client := s.ours(t, fmt.Sprintf("rping-client %v 65535 1000000 tell", at))
	client.count().more(t, 3)
	return client
}

func (s *setting) kill(t *testing.T, p *running) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.lab.Nodes.Signal(ctx, "us", p.id, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// cuts: the link to the guest goes down and comes up, in the middle of a
// transfer. That is our end of it: in Linux 6.1 the guest's own would take rxe's
// QP 1 along for good.
func (s *setting) cuts(t *testing.T) {
	const endpoint = "us:eth0"
	p := s.pairs[0]
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	set := func(t *testing.T, do func(context.Context, string) error) {
		t.Helper()
		if err := do(ctx, endpoint); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("for shorter than the guest's retries last", func(t *testing.T) {
		at := netip.AddrPortFrom(p.guest, s.nextPort())
		const rounds = 30
		guest := s.guest.rping(fmt.Sprintf("-s -a %v -p %d -S 65535 -C %d -V", at.Addr(), at.Port(), rounds))
		s.guest.listens(t, at)
		ours := s.ours(t, fmt.Sprintf("rping-client %v 65535 %d tell", at, rounds))
		done := ours.count()
		for range 3 { // at some point of a round or other
			done.more(t, 3)
			set(t, s.lab.Links.Down)
			set(t, s.lab.Links.Up)
		}
		if err := ours.wait(); err != nil {
			t.Errorf("our client: %v", err)
		}
		if err := guest(); err != nil {
			t.Errorf("the guest's server: %v", err)
		}
	})
	ours, done, _, port := s.draining(t, p)
	t.Run("for shorter than our retries last", func(t *testing.T) {
		before := s.timeouts(t)
		set(t, s.lab.Links.Down)
		for s.timeouts(t) == before {
			if ctx.Err() != nil {
				t.Fatal("our requester never ran into a timeout")
			}
		}
		set(t, s.lab.Links.Up)
		done.more(t, 3)
	})
	t.Run("for longer", func(t *testing.T) {
		set(t, s.lab.Links.Down)
		err := within(t, "our server", ours.wait)
		if err == nil || !strings.Contains(err.Error(), provider.StatusIOTimeout.Error()) {
			t.Errorf("our server ends with %v, want %v", err, provider.StatusIOTimeout)
		}
		set(t, s.lab.Links.Up)
		s.guest.run(t, fmt.Sprintf("kill -KILL $(cat /tmp/%d) || true", port)) // our DREQ may have told it
		s.works(t)
	})
}

// timeouts returns the number of times that requesters of the node have waited in vain.
func (s *setting) timeouts(t *testing.T) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in, err := s.lab.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return in.Nodes[0].Transport["timeouts"]
}

// vanish: the whole guest is gone at a stroke, and then there is another in its
// place.
func (s *setting) vanish(t *testing.T) {
	ours, _, _, _ := s.draining(t, s.pairs[0])
	script(t, commandTime, "stop", s.guest.name)
	err := within(t, "our server", ours.wait)
	if err == nil || !strings.Contains(err.Error(), provider.StatusIOTimeout.Error()) {
		t.Errorf("our server ends with %v, want %v", err, provider.StatusIOTimeout)
	}
	s.boot(t)
	s.works(t)
}
