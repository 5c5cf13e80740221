package linkem

import (
	"bytes"
	"testing"

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
