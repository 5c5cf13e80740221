package pace

import (
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

const ms = time.Millisecond

// A sender sends to a path whose peer answers with a window.
type sender struct {
	*testing.T
	path *Path
	sent uint64
	now  time.Duration
}

func newSender(t *testing.T) *sender { return &sender{T: t, path: NewPath(7), now: time.Hour} }

// fill sends packets of 1 KiB as long as it may, and returns how many, and the Marks between them.
func (s *sender) fill() (packets int, marks []mad.Mark) {
	for s.sent < s.path.Limit() {
		s.sent += 1 << 10
		packets++
		if s.sent >= s.path.NextMark() {
			marks = append(marks, s.path.Mark(s.now, s.sent))
		}
	}
	return packets, marks
}

// sends fails the test unless it may send so many packets now, and returns the Marks.
func (s *sender) sends(packets, marks int) []mad.Mark {
	s.Helper()
	n, m := s.fill()
	if n != packets || len(m) != marks {
		s.Fatalf("%d packets and %d marks, want %d and %d", n, len(m), packets, marks)
	}
	return m
}

// answered has a Mark be answered with a window of so many KiB.
func (s *sender) answered(m mad.Mark, window uint32) {
	s.path.HandleAnswer(s.now, &mad.Answer{Mark: m, Window: window << 10})
}

func TestWindow(t *testing.T) {
	s := newSender(t)
	m := s.sends(32, 2)
	s.now += ms
	s.answered(m[0], 64)
	m = append(m, s.sends(16+64-32, 1)...) // 16 KiB of 32 are taken
	s.answered(m[0], 1000)                 // once more
	s.sends(0, 0)
	s.now += ms
	s.answered(m[2], 1000)
	// 48 KiB were taken in a millisecond, as long as the shortest round trip, and 16 are not yet.
	if marks := s.sends(48+1000-16, 4); marks[0].Taken != m[2].Sent || marks[0].Since != s.now {
		t.Errorf("marks %v, want the first to say that %d were taken just now", marks, m[2].Sent)
	}
}

// TestSlowReceiver: where a round trip takes longer since the peer is slow, no more than the window is in its buffer.
func TestSlowReceiver(t *testing.T) {
	s := newSender(t)
	m := s.sends(32, 2)
	s.now += ms // the way there and back
	s.answered(m[0], 64)
	for range 100 {
		_, marks := s.fill()
		m = append(m, marks...)
		last := m[len(m)-1]
		s.now = last.At + 50*ms
		s.answered(last, 64)
		if held := s.path.Limit() - last.Sent; held > (64+64/50+2)<<10 {
			t.Fatalf("window of %d KiB, want 64 and what 1 ms of 50 takes", held>>10)
		}
	}
}

// TestLongPath: what is on its way takes no room in the buffer.
func TestLongPath(t *testing.T) {
	s := newSender(t)
	window := uint64(0)
	for i := range 100 {
		_, m := s.fill()
		s.now += 100 * ms
		before := s.path.taken
		s.answered(m[len(m)-1], 64)
		window = s.path.Limit() - s.path.taken
		if want := 64<<10 + s.path.taken - before; i > 0 && window != want {
			t.Fatalf("window %d, want %d", window, want)
		}
	}
	if window < 60*64<<10 {
		t.Errorf("window of %d KiB after 100 round trips, want 64 more with each", window>>10)
	}
}

// TestStaleRoundTrip: a path that has become longer while it was idle is not taken for a slow receiver.
func TestStaleRoundTrip(t *testing.T) {
	s := newSender(t)
	m := s.sends(32, 2)
	s.now += ms
	s.answered(m[1], 64)
	s.now += staleAfter
	s.now++
	_, m = s.fill()
	s.now += 10 * ms
	s.answered(m[0], 64)
	if s.path.shortest != 10*ms {
		t.Errorf("shortest round trip %v, want that of after the pause, 10ms", s.path.shortest)
	}
}

func TestUnbelievable(t *testing.T) {
	for name, change := range map[string]func(*mad.Answer){
		"another's":         func(a *mad.Answer) { a.ID++ },
		"never sent":        func(a *mad.Answer) { a.Sent += 1 << 20 },
		"of nothing":        func(a *mad.Answer) { a.Sent = 0 },
		"of the future":     func(a *mad.Answer) { a.At += time.Hour },
		"of no time":        func(a *mad.Answer) { a.Since = a.At + 1 },
		"takes back":        func(a *mad.Answer) { a.Taken = a.Sent },
		"less than nothing": func(a *mad.Answer) { a.Taken = math.MaxUint64 },
	} {
		s := newSender(t)
		a := mad.Answer{Mark: s.sends(32, 2)[0], Window: 1 << 20}
		s.now += ms
		change(&a)
		s.path.HandleAnswer(s.now, &a)
		if n, _ := s.fill(); n != 0 {
			t.Errorf("an answer that is %s lets %d packets go", name, n)
		}
	}
	s := newSender(t)
	m := s.sends(32, 2)
	s.now += ms
	s.path.HandleAnswer(s.now, &mad.Answer{Mark: m[1]})
	if room := s.path.Limit() - m[1].Sent; room < MinWindow {
		t.Errorf("room for %d bytes, want %d at least", room, MinWindow)
	}
}

// waits has somebody wait until nobody need any more, and returns after how long, and how many Marks were sent.
func (s *sender) waits() (took time.Duration, marks int) {
	began := s.now
	for s.path.StartWaiting(s.now); s.path.Deadline() != 0; s.path.StartWaiting(s.now) {
		s.now = s.path.Deadline()
		if !s.path.HandleTimeout(s.now) {
			break
		}
		s.path.Mark(s.now, s.sent)
		marks++
	}
	return s.now - began, marks
}

func TestPatience(t *testing.T) {
	s := newSender(t)
	m := s.sends(32, 2)
	if took, marks := s.waits(); took != unansweredWait || marks != 5 {
		t.Errorf("waits %v and asks %d times for who never answered, want %v and 5", took, marks, unansweredWait)
	}
	if s.path.Limit() != math.MaxUint64 || s.path.NextMark() != s.sent+unpacedInterval {
		t.Errorf("may send up to %d and ask at %d then, want no bound and %d", s.path.Limit(), s.path.NextMark(), s.sent+unpacedInterval)
	}
	s.answered(m[1], 64)
	if s.path.Limit() == math.MaxUint64 {
		t.Error("no bound although the peer has answered")
	}
	s.fill()
	if took, marks := s.waits(); took != answeredWait || marks != 19 {
		t.Errorf("waits %v and asks %d times for who has answered, want %v and 19", took, marks, answeredWait)
	}
}

// TestLostAnswers: each that arrives makes up for those before it, and patience begins anew.
func TestLostAnswers(t *testing.T) {
	s := newSender(t)
	for range 50 {
		_, m := s.fill()
		s.path.StartWaiting(s.now)
		s.now = s.path.Deadline()
		if !s.path.HandleTimeout(s.now) {
			t.Fatal("out of patience")
		}
		again := s.path.Mark(s.now, s.sent)
		if len(m) > 0 && again.Sent < m[len(m)-1].Sent {
			t.Fatal("asks for less")
		}
		s.now += ms
		s.answered(again, 64)
		// Of what was taken since the last answer most waited for the Mark.
		if free := s.path.Limit() - s.sent; free < 64<<10 || free > 80<<10 {
			t.Fatalf("%d bytes are free, want 64 KiB and what 1 ms of 11 takes", free)
		}
	}
}

func TestBuffer(t *testing.T) {
	b := NewBuffer(1 << 20)
	window := func(now time.Duration, id uint64) uint32 {
		m := mad.Mark{ID: id, Sent: 5, Taken: 3, At: 4}
		a := b.Answer(now, &m)
		if a.Mark != m {
			t.Errorf("answers %v with %v", m, a.Mark)
		}
		return a.Window
	}
	for _, of := range []struct {
		at   time.Duration
		id   uint64
		want uint32
	}{
		{1 * ms, 1, 1 << 20}, {2 * ms, 1, 1 << 20}, {3 * ms, 2, 1 << 19}, {4 * ms, 1, 1 << 19},
		{100 * ms, 1, 1 << 19}, {150 * ms, 1, 1 << 19}, // the other was there in the period before
		{200 * ms, 1, 1 << 20}, {250 * ms, 3, 1 << 19}, {1000 * ms, 4, 1 << 20},
	} {
		if got := window(of.at, of.id); got != of.want {
			t.Errorf("at %v sender %d: window %d, want %d", of.at, of.id, got, of.want)
		}
	}
	for id := range uint64(1000) {
		if got := window(2000*ms, id); got < MinWindow {
			t.Fatalf("window %d, want %d at least", got, MinWindow)
		}
	}
}
