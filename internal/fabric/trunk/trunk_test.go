package trunk

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"pgregory.net/rapid"
)

// message returns a frame as it crosses.
func message(f *Frame) []byte { return AppendOwn(append(AppendHead(nil, f), f.Bytes...), f) }

func drawFrame(t *rapid.T) Frame {
	f := Frame{
		Link: rapid.Uint32().Draw(t, "link"), Direction: rapid.IntRange(0, 1).Draw(t, "direction"),
		Arrived: time.Duration(rapid.Int64().Draw(t, "arrived")),
		Bytes:   rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"),
	}
	for range rapid.IntRange(0, 5).Draw(t, "runs") {
		f.Runs = append(f.Runs, Run{
			Departs: time.Duration(rapid.Int64().Draw(t, "departs")), Queued: time.Duration(rapid.Int64().Draw(t, "queued")),
			First: int(rapid.Uint16().Draw(t, "first")), Count: int(rapid.Uint16().Draw(t, "count")), Mark: rapid.Bool().Draw(t, "mark"),
		})
		if rapid.Bool().Draw(t, "own") {
			f.Runs[len(f.Runs)-1].Own = rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "own bytes")
		}
	}
	return f
}

// A stream gives the frames that were put into it, wherever it is cut.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(rapid.Custom(drawFrame), 1, 8).Draw(t, "frames")
		var stream []byte
		for i := range frames {
			stream = append(stream, message(&frames[i])...)
		}
		r := NewReader(1)
		for len(stream) > 0 {
			n := copy(r.Room(), stream[:rapid.IntRange(1, len(stream)).Draw(t, "cut")])
			stream = stream[n:]
			r.Add(n)
			for {
				f, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if f == nil {
					break
				}
				want := frames[0]
				if len(want.Runs) == 0 {
					want.Runs = f.Runs[:0]
				}
				if diff := cmp.Diff(&want, f); diff != "" {
					t.Fatal(diff)
				}
				frames = frames[1:]
			}
		}
		if len(frames) > 0 {
			t.Fatalf("%d frames did not come", len(frames))
		}
	})
}

// The longest message that may be fits into a reader.
func TestLongest(t *testing.T) {
	f := Frame{Runs: make([]Run, MaxRuns), Bytes: make([]byte, frame.MaxLen)}
	for i := range f.Runs {
		f.Runs[i].Own = make([]byte, frame.MaxHeaders+2*frame.MaxLen/MaxRuns)
	}
	stream := message(&f)
	r := NewReader(1)
	r.Add(copy(r.Room(), stream))
	if got, err := r.Next(); err != nil || got == nil || len(got.Runs) != MaxRuns {
		t.Error(err)
	}
}

// Messages of a hostile peer are refused, and nothing of them is believed.
func TestBadStream(t *testing.T) {
	good := message(&Frame{Runs: []Run{{Count: 1}, {Count: 1, Own: []byte("own")}}, Bytes: []byte("frame")})
	for _, c := range []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"short", func(b []byte) { binary.LittleEndian.PutUint32(b, headLen-1) }, "a message of 23 bytes"},
		{"long", func(b []byte) { binary.LittleEndian.PutUint32(b, MaxLen+1) }, "a message of"},
		{"longest", func(b []byte) { binary.LittleEndian.PutUint32(b, 1<<32-1) }, "a message of 4294967295 bytes"},
		{"runs", func(b []byte) { b[4] = 9 }, "the message is cut short"},
		{"many runs", func(b []byte) { b[5] = 0xff }, "the message is cut short"},
		{"frame", func(b []byte) { b[12] = 9 }, "the message is cut short"},
		{"own", func(b []byte) { b[headLen+runLen+21] = 4 }, "the message is cut short"},
		{"less", func(b []byte) { b[headLen+runLen+21] = 2 }, "1 bytes too many"},
		{"direction", func(b []byte) { b[6] = 2 }, "a link has no direction 2"},
	} {
		bad := bytes.Clone(good)
		c.change(bad)
		r := NewReader(1)
		r.Add(copy(r.Room(), bad))
		if f, err := r.Next(); err == nil || !bytes.Contains([]byte(err.Error()), []byte(c.want)) {
			t.Errorf("%s: %+v, %v, want %q", c.name, f, err, c.want)
		}
	}
	for _, f := range []Frame{{Bytes: make([]byte, frame.MaxLen+1)}, {Runs: []Run{{Own: make([]byte, frame.MaxLen+1)}}}} {
		if err := parse(message(&f), &Frame{}); err == nil {
			t.Error("a frame that is too long is taken")
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(message(&Frame{Runs: []Run{{Count: 1}, {Count: 1, Own: []byte("own")}}, Bytes: []byte("frame")}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(1)
		for len(stream) > 0 {
			n := copy(r.Room(), stream)
			r.Add(n)
			stream = stream[n:]
			for {
				got, err := r.Next()
				if err != nil {
					return
				}
				if got == nil {
					break
				}
			}
		}
	})
}

// A ping comes through as it was; what is none is refused.
func TestPing(t *testing.T) {
	for _, p := range []Ping{{Sent: 1}, {Answer: true, Sent: -5, Received: 1 << 60, Answered: 7}, {Sent: 3, Knows: true, Ahead: -9}} {
		b := p.Append(nil)
		if got, ok := ParsePing(b); !ok || got != p || len(b) != PingLen {
			t.Errorf("%+v, %v, want %+v", got, ok, p)
		}
		if _, ok := ParsePing(b[1:]); ok {
			t.Error("it is taken though it is cut")
		}
		b[0]++
		if _, ok := ParsePing(b); ok {
			t.Error("it is taken without its beginning")
		}
	}
}

// A simulated peer answers pings: its clock is ahead and drifts, datagrams take some time each way.
func answer(sent, there, back time.Duration, clock func(time.Duration) time.Duration) (p Ping, came time.Duration) {
	const handled = 5 * time.Microsecond
	return Ping{Answer: true, Sent: sent, Received: clock(sent + there), Answered: clock(sent + there + handled)}, sent + there + handled + back
}

// The estimate is never more wrong than it says, while the clocks drift and the network is busy; and it is as right as the quickest
// pings are, also after others.
func TestOffset(t *testing.T) {
	for _, ppm := range []time.Duration{-drift, 0, 7, drift} {
		const ahead = -3 * time.Hour
		clock := func(t time.Duration) time.Duration { return t + ahead + t*ppm/1e6 }
		random := rand.New(rand.NewPCG(1, uint64(ppm)))
		var o Offset
		now := time.Hour
		if o.Known() {
			t.Error("it is known before the first answer")
		}
		for i := range 1000 {
			there, back := 20*time.Microsecond, 20*time.Microsecond
			if i%10 != 0 || i >= 500 && i < 540 { // busy, at times for more than a second
				there += time.Duration(random.ExpFloat64() * 1e6)
				back += time.Duration(random.ExpFloat64() * 1e5)
			}
			p, came := answer(now, there, back, clock)
			o.Add(p, came)
			for _, at := range []time.Duration{came, came + PingInterval/2} {
				if off := (o.Ahead() - (clock(at) - at)).Abs(); off > o.Wrong(at) {
					t.Fatalf("%d ppm, ping %d: wrong by %v, said is %v", ppm, i, off, o.Wrong(at))
				}
			}
			// One of ten is quick: 20 us there and back are 20 us either way, and the clocks drift by 20 ppm for 0.3 s.
			if wrong := o.Wrong(came); (i < 500 || i >= 600) && wrong > 28*time.Microsecond {
				t.Fatalf("%d ppm, ping %d: may be wrong by %v", ppm, i, wrong)
			}
			now += PingInterval
		}
		if o.Trip() > 50*time.Microsecond {
			t.Errorf("a trip takes %v", o.Trip())
		}
	}
}

// A clock that is set, or a peer that was suspended, is known with the next measurement.
func TestStep(t *testing.T) {
	var o Offset
	now := time.Hour
	ahead := time.Second
	for i := range 101 {
		if i == 100 {
			ahead = time.Minute
		}
		p, came := answer(now, 50*time.Microsecond, 50*time.Microsecond, func(t time.Duration) time.Duration { return t + ahead })
		o.Add(p, came)
		now += PingInterval
	}
	if o.Ahead() != ahead {
		t.Errorf("%v, want %v", o.Ahead(), ahead)
	}
}

// Two hosts agree on one difference of their clocks, whatever either has measured: one is early by as much as the other is late. It
// stays the same while the network is busy, and changes with clocks that drift.
func TestAgreed(t *testing.T) {
	for _, ppm := range []time.Duration{0, drift} {
		const ahead = 3 * time.Hour
		clock := func(t time.Duration) time.Duration { return t + ahead + t*ppm/1e6 }
		back := func(far time.Duration) time.Duration { return far - ahead - (far-ahead)*ppm/(1e6+ppm) }
		random := rand.New(rand.NewPCG(1, uint64(ppm)))
		trip := func() time.Duration { return 20*time.Microsecond + time.Duration(random.ExpFloat64()*1e5) }
		var offsets [2]Offset
		var hosts [2]Agreed
		changes, last := 0, time.Duration(0)
		for i := range 2000 {
			now := time.Hour + time.Duration(i)*PingInterval
			at := [2]time.Duration{now, clock(now)}
			for h := range hosts {
				to := []func(time.Duration) time.Duration{clock, back}[h]
				p, came := answer(at[h], trip(), trip(), to)
				offsets[h].Add(p, came)
				hosts[h].Take(&offsets[h], came, i < 16)
			}
			for h := range hosts {
				var p Ping
				hosts[h].Tell(&p)
				hosts[1-h].Hear(&p)
			}
			got := hosts[0].Ahead()
			if got != -hosts[1].Ahead() {
				t.Fatalf("%d ppm, ping %d: %v and %v", ppm, i, got, hosts[1].Ahead())
			}
			// Either is in the bounds of what it has measured, in which the truth is, too.
			most := offsets[0].Wrong(at[0]) + offsets[1].Wrong(at[1]) + time.Microsecond
			if off := (got - (clock(now) - now)).Abs(); off > most {
				t.Fatalf("%d ppm, ping %d: wrong by %v, more than %v", ppm, i, off, most)
			}
			if i > 100 && got != last {
				changes++
			}
			last = got
		}
		if ppm == 0 && changes > 20 || ppm == drift && changes < 20 {
			t.Errorf("%d ppm: %d changes", ppm, changes)
		}
	}
}

// Answers that cannot be, of a peer that lies, do not count.
func TestBadAnswer(t *testing.T) {
	var o Offset
	o.Add(Ping{Answer: true, Sent: 100, Received: 0, Answered: 1000}, 200)
	if o.Known() {
		t.Errorf("%v", o.Ahead())
	}
}
