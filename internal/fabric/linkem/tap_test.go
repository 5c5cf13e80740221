package linkem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkem/tap"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// listen taps the link of a bench.
func (b *bench) listen(room, snaplen int) *packetTap {
	t := &packetTap{spool: newSpool[byte](room), snaplen: snaplen}
	b.k.taps = append(b.k.taps, t)
	return t
}

// heard returns the packets in the stream up to its end.
func (t *packetTap) heard(tb testing.TB) (packets []tap.Packet) {
	tb.Helper()
	var stream []byte
	must(tb, t.end(func(b *batch[byte]) error {
		stream = append(stream, b.items...)
		return nil
	}))
	for r := tap.NewReader(bytes.NewReader(stream)); ; {
		p, err := r.Next()
		if err == io.EOF {
			return packets
		}
		must(tb, err)
		p.Frame = bytes.Clone(p.Frame)
		packets = append(packets, p)
	}
}

// Of each packet of a super-packet a tap tells when it came, when it leaves, the
// bytes that a wire would have carried and, if it is dropped, why.
func TestTap(t *testing.T) {
	before := time.Now().UnixNano()
	b := newBench(t, topology.Impairment{Delay: time.Second, Loss: topology.Loss{Rate: 0.5}})
	whole, short := b.listen(1<<20, 0), b.listen(1<<20, 60)
	raw := superPacket(15, 1000)
	b.arrive(t, raw)
	after := time.Now().UnixNano()
	f, err := frame.Parse(raw)
	must(t, err)
	packets := whole.heard(t)
	if len(packets) != 15 {
		t.Fatalf("%d packets, want 15", len(packets))
	}
	var passed []byte
	for i, p := range packets {
		want := tap.Packet{Stamp: p.Stamp, Size: 1042, Frame: f.AppendPacket(nil, i)}
		if p.Departs == 0 {
			want.Comment = "dropped: loss"
		} else {
			want.Departs = p.Stamp + int64(time.Second)
			passed = append(passed, byte(i))
		}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("packet %d (-want +got):\n%s", i, diff)
		}
		if p.Stamp < before-int64(maxHandover) || p.Stamp > after { // this wire has no timestamps
			t.Errorf("packet %d came at %d, not between %d and %d", i, p.Stamp, before, after)
		}
	}
	b.shift(2 * time.Second)
	b.egress.send(b.k.lines[0])
	if left, _ := b.left(t); !bytes.Equal(left, passed) || len(passed) == 0 || len(passed) == 15 {
		t.Errorf("packets %v left; the tap tells that of %v", left, passed)
	}
	for i, p := range short.heard(t) {
		if !bytes.Equal(p.Frame, packets[i].Frame[:60]) || p.Size != 1042 {
			t.Errorf("packet %d cut to 60 bytes: %d of %d", i, len(p.Frame), p.Size)
		}
	}
}

func TestTapMissesWhatItHasNoRoomFor(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Second})
	whole := b.listen(3*1100, 0)
	b.arrive(t, superPacket(5, 1000))
	if got := whole.heard(t); len(got) != 4 || got[2].Missed != 0 || got[3].Size != 0 || got[3].Missed != 2 {
		t.Fatalf("%d packets with room for 3, then one that tells of 2 missed", len(got))
	}
	b.arrive(t, superPacket(1, 1000))
	if got := whole.heard(t); len(got) != 1 || got[0].Missed != 2 {
		t.Errorf("after two that were missed: %d packets, the first of which tells of %d", len(got), got[0].Missed)
	}
}

// Packets that the engine has no memory for are reported as lost.
func TestTapOfAnOverrun(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Hour})
	none, err := newPool(bufferLen - 1)
	must(t, err)
	*b.egress.memory = *none
	whole := b.listen(1<<20, 0)
	b.arrive(t, superPacket(2, 100))
	got := whole.heard(t)
	if len(got) != 2 || got[0].Departs != 0 || got[0].Comment != "lost: overrun, no memory left" {
		t.Errorf("got %+v", got)
	}
}

func TestComments(t *testing.T) {
	for want, v := range map[string]impair.Verdict{
		"":                              {},
		"dropped: queue full":           {Fate: impair.QueueFull},
		"dropped: loss":                 {Fate: impair.Lost, Cause: impair.Chance},
		"dropped: loss (burst)":         {Fate: impair.Lost, Cause: impair.Burst},
		"dropped: loss (every n-th)":    {Fate: impair.Lost, Cause: impair.Every},
		"dropped: loss (chosen packet)": {Fate: impair.Lost, Cause: impair.Place},
		"dropped: fault 3":              {Fate: impair.Lost, Cause: impair.Fault, Fault: 3},
		"dropped: cut":                  {Fate: impair.Down, Cause: impair.Cut},
		"dropped: flap":                 {Fate: impair.Down, Cause: impair.Flap},
		"duplicated, marked":            {Twice: true, Mark: true},
		"reordered":                     {Overtakes: 2},
		"postponed by 5ms, fault 1":     {Postponed: 5 * time.Millisecond, Fault: 1},
	} {
		if got := comment(&v); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}

// The stream reaches whoever reads it, and ends with the context, also if nobody
// reads, and with the reader.
func TestTapOfAnEngine(t *testing.T) {
	l := newLab(t, 1500)
	l.attach(t, topology.Impairment{}, topology.Impairment{})
	a, b := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	meet(t, a, b)
	must(t, l.engine.Set(deadline(t), linkName, 1, topology.Impairment{Loss: topology.Loss{Rate: 1}}))
	tapped := func(ctx context.Context) (*os.File, chan error) {
		r, w, err := os.Pipe()
		must(t, err)
		begun, begins, err := os.Pipe()
		must(t, err)
		defer begun.Close()
		ended := make(chan error, 1)
		go func() {
			defer w.Close()
			defer begins.Close()
			ended <- l.engine.Tap(ctx, linkName, 0, w, begins)
		}()
		_, err = begun.Read(make([]byte, 1))
		must(t, err)
		if n, err := unix.IoctlGetInt(int(r.Fd()), unix.SIOCINQ); err != nil || n < tap.Len(&tap.Packet{}) {
			t.Errorf("the tap is on, and its stream has %d bytes, %v", n, err)
		}
		return r, ended
	}
	ctx, cancel := context.WithCancel(deadline(t))
	read, ended := tapped(ctx)
	silent, silentEnded := tapped(ctx)
	_, err := tap.NewReader(silent).Next() // it is there, and that is all that is read of it
	must(t, err)
	stream := tap.NewReader(read)
	hello, err := stream.Next()
	must(t, err)
	if hello.Size != 0 {
		t.Errorf("the stream begins with %+v", hello)
	}
	_, err = a.WriteTo([]byte("there"), b.LocalAddr())
	must(t, err)
	_, err = b.WriteTo([]byte("and back"), a.LocalAddr())
	must(t, err)
	for seen := map[string]bool{}; len(seen) < 2; {
		p, err := stream.Next()
		must(t, err)
		switch {
		case bytes.HasSuffix(p.Frame, []byte("there")) && p.Direction == 0 && p.Departs > 0 && p.Comment == "":
			seen["there"] = true
		case bytes.HasSuffix(p.Frame, []byte("and back")) && p.Direction == 1 && p.Departs == 0 && p.Comment == "dropped: loss":
			seen["back"] = true
		case bytes.HasSuffix(p.Frame, []byte("there")) || bytes.HasSuffix(p.Frame, []byte("and back")):
			t.Fatalf("got %+v", p)
		}
	}
	for range 100 { // more than a pipe takes
		_, err := a.WriteTo(make([]byte, 1400), b.LocalAddr())
		must(t, err)
		p, err := stream.Next()
		must(t, err)
		for p.Size < 1400 {
			p, err = stream.Next()
			must(t, err)
		}
	}
	cancel()
	for _, e := range []chan error{ended, silentEnded} {
		if err := <-e; !errors.Is(err, context.Canceled) {
			t.Errorf("a tap that was ended returned %v", err)
		}
	}
	for err = nil; err == nil; _, err = stream.Next() { // until the engine has closed it
	}
	if err != io.EOF {
		t.Errorf("at the end of the stream: %v", err)
	}
	hangup := []unix.PollFd{{Fd: int32(silent.Fd())}}
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Poll(hangup, int(patience/time.Millisecond))
	}
	must(t, err)
	if hangup[0].Revents&unix.POLLHUP == 0 {
		t.Fatal("the tap that nobody reads does not end")
	}
	silent.Close()

	gone, goneEnded := tapped(deadline(t))
	_, err = tap.NewReader(gone).Next()
	must(t, err)
	gone.Close()
	for waiting := true; waiting; {
		select {
		case err := <-goneEnded:
			must(t, err)
			waiting = false
		default:
			_, err = a.WriteTo([]byte("more"), b.LocalAddr())
			must(t, err)
		}
	}
	if err := l.engine.Tap(deadline(t), "no link", 0, read, read); err == nil {
		t.Error("a link that is not there was tapped")
	}
}
