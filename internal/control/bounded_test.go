package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bounded is a channel to a peer that is not trusted, and that peer's bare socket.
func bounded(t *testing.T, handler Handler, longest int) (*Conn, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	c := NewBounded(ends[0].(*net.UnixConn), handler, longest)
	t.Cleanup(func() { c.Close(); ends[1].Close() })
	return c, ends[1]
}

func say(t *testing.T, to net.Conn, m *message) {
	t.Helper()
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	// It fails when the channel has ended, which is looked at.
	_, _ = to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

func over(t *testing.T, c *Conn) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Error("the channel goes on")
	}
}

// TestBounded: the channel to a peer that is not trusted ends by a message that is too
// long, before the peer has sent it, and by more requests than may be unanswered.
func TestBounded(t *testing.T) {
	t.Run("a long message", func(t *testing.T) {
		c, peer := bounded(t, nil, 1000)
		if _, err := peer.Write(binary.BigEndian.AppendUint32(nil, 1001)); err != nil {
			t.Fatal(err)
		}
		over(t, c)
	})
	t.Run("many requests", func(t *testing.T) {
		served := make(chan struct{}, 2*boundedRequests)
		c, peer := bounded(t, func(ctx context.Context, _ *Request) (any, error) {
			served <- struct{}{}
			<-ctx.Done()
			return nil, nil
		}, 1000)
		for id := range uint64(boundedRequests) {
			say(t, peer, &message{ID: id + 1, Method: "wait"})
		}
		for range boundedRequests {
			<-served
		}
		if c.ctx.Err() != nil {
			t.Fatal("the channel has ended")
		}
		say(t, peer, &message{ID: 99, Method: "wait"})
		over(t, c)
	})
	t.Run("one request after the other", func(t *testing.T) {
		_, peer := bounded(t, func(context.Context, *Request) (any, error) { return nil, nil }, 1000)
		other := New(peer.(*net.UnixConn), nil)
		defer other.Close()
		for range 10 * boundedRequests {
			if err := other.call(t.Context(), "nothing", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}
