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
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
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

func inStep() (none trunk.Difference) { return none }

// A capture through a stream has the packets that one of a socket has, to the last frame before the end.
func TestStream(t *testing.T) {
	wire(t)
	socket, err := Open("near")
	must(t, err)
	defer socket.Close()
	theirs, ours := streamPair(t)
	sent := make(chan error, 1)
	go func() { sent <- Send(context.Background(), socket, theirs, never, inStep) }()
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

// Frames of two hosts whose clocks differ are recorded on one time line: each that arrives behind where it was sent, while the
// clocks drift and one of them is set.
func TestStreamsOfOtherClocks(t *testing.T) {
	const (
		delay = 100 * time.Microsecond
		wrong = 20 * time.Microsecond // by how much what is known of the clocks is
	)
	var file bytes.Buffer
	far, near := 5*time.Second, -time.Hour // ahead
	sources := []Source{
		{Name: "near", Stream: true, Host: "a", Clock: trunk.Difference{Ahead: near, Wrong: wrong}},
		{Name: "far", Stream: true, Host: "b", Clock: trunk.Difference{Ahead: far, Wrong: wrong}},
	}
	r := newRecorder(sources, newChunks(2), Stream(&file), Options{})
	r.begin()
	begin := time.Now().Add(-time.Hour)
	clocks := []trunk.Difference{sources[0].Clock, sources[1].Clock}
	take := func(source int, ahead time.Duration, at time.Time, frame []byte) {
		s := sender{clock: func() trunk.Difference { return trunk.Difference{Ahead: ahead + wrong/2, Wrong: wrong} }}
		s.sayClock()
		s.message(at.Add(ahead).UnixNano(), 0, frame)
		c := &chunk{source: source, clock: clocks[source]}
		if rest, _, err := c.addMessages(s.messages); err != nil || len(rest) > 0 || len(c.frames) != 1 {
			t.Fatalf("%d bytes are left, %d frames, %v", len(rest), len(c.frames), err)
		}
		clocks[source] = c.clock
		r.clocks[source].take(c.clock)
		for _, f := range c.frames {
			r.frame(source, c.bytes[f.begin:f.end], &f, 0)
		}
	}
	const packets = 20
	for i := range packets {
		if i == packets/2 {
			near += time.Minute
		}
		far += 15 * time.Microsecond
		at := begin.Add(time.Duration(i) * time.Second)
		one := make([]byte, frame.HeaderLen+60)
		one[frame.HeaderLen+59] = byte(i)
		take(0, near, at, one)
		take(1, far, at.Add(delay), one)
	}
	r.write(true)
	must(t, r.end())
	ng, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.DefaultNgReaderOptions)
	must(t, err)
	var last time.Time
	for i := range 2 * packets {
		data, info, err := ng.ReadPacketData()
		must(t, err)
		if data[59] != byte(i/2) || info.InterfaceIndex != i%2 {
			t.Errorf("packet %d is number %d at interface %d", i, data[59], info.InterfaceIndex)
		}
		if off := info.Timestamp.Sub(begin.Add(time.Duration(i/2)*time.Second + time.Duration(i%2)*delay)).Abs(); off > wrong || info.Timestamp.Before(last) {
			t.Errorf("packet %d is off by %v, %v after the one before", i, off, info.Timestamp.Sub(last))
		}
		last = info.Timestamp
	}
	if _, _, err := ng.ReadPacketData(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for i, want := range []struct{ about, comment string }{
		{"at host a, whose clock is ahead by -3600000000.0 us, give or take 20.0 us, which is taken off its times",
			"the clock of host a was ahead by -3600000000.0 us to -3539999990.0 us, give or take 20.0 us at most, which was taken off its times"},
		{"at host b, whose clock is ahead by 5000000.0 us, give or take 20.0 us, which is taken off its times",
			"the clock of host b was ahead by 5000000.0 us to 5000310.0 us, give or take 20.0 us at most, which was taken off its times"},
	} {
		iface, err := ng.Interface(i)
		must(t, err)
		if iface.Description != want.about || iface.Statistics.Comment != want.comment {
			t.Errorf("interface %d: %q, %q, want %q", i, iface.Description, iface.Statistics.Comment, want)
		}
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
	go func() { done <- Send(ctx, socket, theirs, never, inStep) }()
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
