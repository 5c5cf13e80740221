package linkem

import (
	"bytes"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// newWatch is a watch that sees the frames written to the descriptor.
func newWatch(t *testing.T) (*watch, int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() {
		unix.Close(pair[0])
		unix.Close(pair[1])
	})
	buffers := [][]byte{make([]byte, frame.HeaderLen+signedLen), make([]byte, frame.HeaderLen+signedLen)}
	return &watch{fd: pair[1], receiver: frame.NewReceiver(buffers), sent: map[uint64]int{}}, pair[0]
}

// numbered is a frame that is told from others by its payload.
func numbered(n byte) []byte {
	b := superPacket(1, 300)
	payload := b[frame.HeaderLen+42:]
	copy(payload, bytes.Repeat([]byte{n}, len(payload)))
	return b
}

// While a link is given back, frames that the kernel forwarded are skipped,
// whether the loop takes them or Detach does, and all others are forwarded.
func TestReleasedLinkForwardsWhatTheKernelDoesNot(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	watches, kernel := [2]*watch{}, [2]int{}
	for i := range watches {
		watches[i], kernel[i] = newWatch(t)
	}
	_, err := b.links.release("x")
	must(t, err)
	must(t, b.links.released("x", watches))
	write := func(fd int, n byte) {
		_, err := unix.Write(fd, numbered(n))
		must(t, err)
	}
	write(b.ends[0], 1)
	write(b.ends[0], 2) // the kernel forwarded this one
	write(kernel[0], 2)
	write(b.ends[0], 3)
	b.ingress.receive(b.k.ports[0])
	b.egress.send(b.k.lines[0])
	if got, _ := b.left(t); !bytes.Equal(got, []byte{1, 3}) {
		t.Errorf("packets %v were forwarded, want 1 and 3", got)
	}
	write(b.ends[0], 4)
	write(b.ends[0], 2) // the same once more, which the kernel did not forward
	write(b.ends[0], 5)
	write(kernel[0], 5)
	b.links.drain(b.k) // as Detach does
	if got, _ := b.left(t); !bytes.Equal(got, []byte{4, 2}) {
		t.Errorf("packets %v were forwarded at the end, want 4 and 2", got)
	}
	if m := b.k.lines[0].measure(false); m.Packets != 4 || m.Delivered != 4 {
		t.Errorf("measured %+v", m)
	}
}

// While a link is taken over, what the kernel forwards does not stay at the ports, and
// what it does not is forwarded.
func TestTakenOverLinkHasRoom(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	watch, kernel := newWatch(t)
	b.k.state, b.k.ports[0].other = attached, watch
	for n := range byte(5) {
		for _, fd := range []int{b.ends[0], kernel}[:2-n/4] { // all but the last are forwarded
			_, err := unix.Write(fd, numbered(n))
			must(t, err)
		}
	}
	if !b.links.takeWaiting(b.k.name) {
		t.Error("the link is not attached")
	}
	if n, err := unix.Read(b.k.ports[0].fd, make([]byte, 1)); err != unix.EAGAIN {
		t.Errorf("a frame is left: %d bytes, %v", n, err)
	}
	b.egress.send(b.k.lines[0])
	if got, _ := b.left(t); !bytes.Equal(got, []byte{4}) {
		t.Errorf("packets %v were forwarded, want 4", got)
	}
	if b.k.state = started; b.links.takeWaiting(b.k.name) {
		t.Error("a link that is started is taken over")
	}
	if b.links.takeWaiting("no link") {
		t.Error("a link that was detached is taken over")
	}
}

// Frames that the kernel forwarded through an interface that completes checksums, and cuts super-packets, are skipped, too.
func TestForwardedCompleteIsSkipped(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	watch, kernel := newWatch(t)
	b.k.state, b.k.ports[0].other = attached, watch
	for _, raw := range [][]byte{superPacket(3, 300), numbered(9)} {
		_, err := unix.Write(b.ends[0], raw)
		must(t, err)
		f, err := frame.Parse(raw)
		must(t, err)
		for i := range f.Segments() {
			_, err := unix.Write(kernel, f.AppendPacket(make([]byte, frame.HeaderLen), i)) // with no virtio header to speak of
			must(t, err)
		}
	}
	_, err := unix.Write(b.ends[0], numbered(4))
	must(t, err)
	b.links.takeWaiting(b.k.name)
	b.egress.send(b.k.lines[0])
	if got, _ := b.left(t); !bytes.Equal(got, []byte{4}) {
		t.Errorf("packets %v were forwarded, want 4", got)
	}
	if len(watch.sent) > 0 {
		t.Errorf("%d packets are remembered that were forwarded", len(watch.sent))
	}
}

// A frame that the kernel forwarded before the port was open is not taken for an equal one that comes later.
func TestForwardedBeforeIsForgotten(t *testing.T) {
	for _, c := range []struct {
		since time.Duration // from now
		saw   bool
	}{{time.Minute, false}, {-time.Minute, true}} {
		watch, kernel := newWatch(t)
		_, err := unix.Write(kernel, numbered(2))
		must(t, err)
		watch.update(time.Now().Add(c.since).UnixNano())
		if saw := watch.saw(numbered(2)); saw != c.saw {
			t.Errorf("since %v from now: %v, want %v", c.since, saw, c.saw)
		}
	}
}

// A link whose release was over when nobody waited for it any more can be set, and released again.
func TestReleasedLinkIsSet(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	give := func() (watches [2]*watch) {
		t.Helper()
		idle, err := b.links.release("x")
		if err != nil || idle == nil {
			t.Fatalf("idle %v, error %v", idle, err)
		}
		for i := range watches {
			watches[i], _ = newWatch(t)
		}
		must(t, b.links.released("x", watches))
		return watches
	}
	opened := give()
	if idle, err := b.links.release("x"); err != nil || idle != nil {
		t.Errorf("a second release: idle %v, error %v", idle, err)
	}
	closes, err := b.links.set(setParams{Link: "x"}) // to what has packets leave at once
	if err != nil || closes != opened {
		t.Errorf("set: watches %v are to be closed, want %v; error %v", closes, opened, err)
	}
	if b.k.state != started || b.k.ports[0].other != nil || b.k.ports[1].other != nil {
		t.Errorf("the link is %v, with watches %v and %v", b.k.state, b.k.ports[0].other, b.k.ports[1].other)
	}
	b.arrive(t, numbered(3))
	b.egress.send(b.k.lines[0])
	if got, _ := b.left(t); !bytes.Equal(got, []byte{3}) {
		t.Errorf("packets %v were forwarded, want 3", got)
	}
	give()
}
