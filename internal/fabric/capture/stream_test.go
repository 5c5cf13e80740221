package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// streamPair is the two ends of a stream.
func streamPair(t *testing.T) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func never() bool { return false }

// A capture through a stream has the packets that one of a socket has, to the last frame before the end.
func TestStream(t *testing.T) {
	wire(t)
	socket, err := Open("near")
	must(t, err)
	defer socket.Close()
	theirs, ours := streamPair(t)
	sent := make(chan error, 1)
	go func() { sent <- Send(context.Background(), socket, theirs, never) }()
	ctx, cancel := context.WithCancel(context.Background())
	var file bytes.Buffer
	var counts []Counts
	done := make(chan error)
	go func() {
		var err error
		counts, err = Run(ctx, []Source{{Name: "near", Socket: ours, Stream: true}}, Stream(&file), Options{})
		done <- err
	}()
	payload := sendSuper(t)
	cancel()
	must(t, <-done)
	must(t, <-sent)
	got, _ := readBack(t, file.Bytes())
	if diff := cmp.Diff(wanted(payload), got); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Counts{{Packets: uint64(len(got))}}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// A reader that is slow loses frames of the socket, which are counted, and holds up nothing.
func TestStreamOfASlowReader(t *testing.T) {
	wire(t)
	socket, err := Open("near")
	must(t, err)
	defer socket.Close()
	raw, err := socket.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		must(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10))
	}))
	const sent = 400
	for range sent { // more than the socket and the stream hold, before anybody reads
		sendSuper(t)
	}
	theirs, ours := streamPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan error, 1)
	go func() { done <- Send(ctx, socket, theirs, never) }()
	var file bytes.Buffer
	counts, err := Run(ctx, []Source{{Name: "near", Socket: ours, Stream: true}}, Stream(&file), Options{})
	must(t, err)
	must(t, <-done)
	perSuper := uint64(len(wanted(make([]byte, payload))))
	if c := counts[0]; c.Packets == 0 || c.Dropped == 0 || c.Packets+c.Dropped*perSuper != sent*perSuper {
		t.Errorf("counts %+v of %d super-packets of %d packets", c, sent, perSuper)
	}
}

// Of several streams, a packet waits until each has said that nothing older comes.
func TestStreamsAreInOrder(t *testing.T) {
	var file bytes.Buffer
	r := newRecorder([]Source{{Name: "a", Stream: true}, {Name: "b", Stream: true}}, newChunks(2), Stream(&file), Options{})
	r.begin()
	now := time.Now().UnixNano()
	since := now - 2*int64(window)
	r.waiting[0].add([]byte{0, 20}, 20).since = since
	for _, step := range []struct {
		until int64 // of the stream of b
		add   int64 // stamp of a packet of b; 0: none
		want  uint64
	}{{0, 0, 0}, {20, 0, 0}, {10, 10, 1}, {21, 0, 2}} {
		r.come[1].until = step.until
		if step.add > 0 {
			r.waiting[1].add([]byte{1, byte(step.add)}, step.add).since = since
			r.waiting[1].first().source = 1
			r.come[0].until = 11
		}
		if r.write(false); r.written != step.want {
			t.Errorf("b has come to %d: %d packets are written, want %d", step.until, r.written, step.want)
		}
	}
	r.waiting[0].add([]byte{0, 30}, 30).since = now - int64(patience) - 1
	if r.write(false); r.written != 3 {
		t.Error("a packet waits for ever for a stream that says nothing")
	}
	must(t, r.end())
	packets, _ := readBack(t, file.Bytes())
	if diff := cmp.Diff([][]byte{{1, 10}, {0, 20}, {0, 30}}, packets); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
}

// A stream of something else is refused.
func TestStreamOfNonsense(t *testing.T) {
	for _, length := range []byte{0, messageLen - 1, 255} {
		theirs, ours := streamPair(t)
		_, err := theirs.Write(bytes.Repeat([]byte{length}, messageLen))
		must(t, err)
		if _, err := Run(context.Background(), []Source{{Name: "a", Socket: ours, Stream: true}}, Stream(io.Discard), Options{}); !errors.Is(err, errStream) {
			t.Errorf("messages of such bytes as %d: %v", length, err)
		}
	}
}
