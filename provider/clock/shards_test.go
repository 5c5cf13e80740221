package clock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// lookahead bounds how soon one host of a community hears another.
const lookahead = 4

// A community is hosts that do things at random, each by numbers of its own, and send to each other. Instants are so few that many
// events share one.
type community struct {
	hosts []*member
	sends func(to *member, by *member, d time.Duration) // has to.hear run
}

type member struct {
	*community
	clock  *clock.Virtual
	number int
	random *rand.Rand
	did    []string
	timers []clock.Timer
	turns  []*clock.Turn
}

func (m *member) note(what string) {
	m.did = append(m.did, fmt.Sprintf("%d %s", m.clock.Now(), what))
}

func (m *member) hear() { m.note("hears"); m.act() }

// act sets, stops and asks for timers, takes turns and looks whether they came, and sends.
func (m *member) act() {
	draw := m.random.IntN
	for range draw(3) {
		switch d := time.Duration(draw(6)); draw(6) {
		case 0, 1:
			id := len(m.timers)
			m.timers = append(m.timers, m.clock.AfterFunc(d, func() { m.note(fmt.Sprint("timer ", id)); m.act() }))
		case 2:
			if len(m.timers) > 0 {
				m.note(fmt.Sprint("stop ", m.timers[draw(len(m.timers))].Stop()))
			}
		case 3:
			if len(m.timers) > 0 {
				m.timers[draw(len(m.timers))].Reset(d)
			}
		case 4:
			turn := new(clock.Turn)
			turn.Take(m.clock, d)
			m.turns = append(m.turns, turn)
		default:
			m.sends(m.hosts[draw(len(m.hosts))], m, lookahead+d)
		}
	}
	m.turns = slices.DeleteFunc(m.turns, func(t *clock.Turn) bool {
		came := m.clock.Came(*t)
		m.note(fmt.Sprint("turn ", t.At(), " ", came))
		if !came && draw(3) == 0 {
			m.clock.NewTimer(func() { m.note("in turn"); m.act() }).ResetTo(*t)
			return true
		}
		return came
	})
}

func newCommunity(seed uint64, hosts int, of func(i int) *clock.Virtual) *community {
	c := &community{}
	for i := range hosts {
		c.hosts = append(c.hosts, &member{community: c, clock: of(i), number: i, random: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return c
}

// begin has the control stir the hosts now and then, all of them at one instant.
func (c *community) begin(control *clock.Virtual) {
	var stir func()
	stir = func() {
		for _, m := range c.hosts {
			m.act()
		}
		control.AfterFunc(11, stir)
	}
	stir()
}

// TestShards has hosts do the same on one clock as on shards, with windows and steps mixed at random.
func TestShards(t *testing.T) {
	const hosts, end = 6, 400
	for seed := range uint64(50) {
		v := clock.NewVirtual()
		want := newCommunity(seed, hosts, func(int) *clock.Virtual { return v })
		want.sends = func(to, _ *member, d time.Duration) { v.AfterFunc(d, to.hear) }
		want.begin(v)
		for at, _ := v.Next(); at < end; at, _ = v.Next() {
			v.Step()
		}
		for _, n := range []int{1, 2, 3} {
			got := runShards(seed, n, hosts, end)
			for i, m := range got.hosts {
				if w := want.hosts[i].did; !slices.Equal(m.did, w) {
					at := 0
					for at < min(len(m.did), len(w)) && m.did[at] == w[at] {
						at++
					}
					t.Fatalf("seed %d, %d shards, host %d: after %d things alike: %q, want %q", seed, n, i, at, m.did[at:min(at+3, len(m.did))], w[at:min(at+3, len(w))])
				}
			}
		}
	}
}

func runShards(seed uint64, n, hosts int, end time.Duration) *community {
	s := clock.NewShards(n)
	defer s.Close()
	c := newCommunity(seed, hosts, func(i int) *clock.Virtual { return s.Shard(i % n) })
	type sent struct {
		to   *member
		turn clock.Turn
	}
	outboxes := make([][]sent, n)
	windows := false
	c.sends = func(to, by *member, d time.Duration) {
		if !windows || to.clock == by.clock {
			to.clock.AfterFunc(d, to.hear)
			return
		}
		var turn clock.Turn
		turn.Take(by.clock, d)
		outboxes[by.number%n] = append(outboxes[by.number%n], sent{to, turn})
	}
	c.begin(s.Control())
	random := rand.New(rand.NewPCG(seed, 99))
	for {
		next, _ := s.Next()
		if next >= end {
			return c
		}
		until := next + lookahead
		if control, ok := s.Control().Next(); ok {
			until = min(until, control)
		}
		if until = min(until, end); until <= next || random.IntN(4) == 0 {
			s.Step()
			continue
		}
		windows = true
		s.Window(until)
		windows = false
		for i := range outboxes {
			for _, one := range outboxes[i] {
				one.to.clock.NewTimer(one.to.hear).ResetTo(s.Final(i, one.turn))
			}
			outboxes[i] = outboxes[i][:0]
		}
	}
}

// After a window all clocks stand just before its end, and turns up to there have come.
func TestAfterWindow(t *testing.T) {
	s := clock.NewShards(2)
	defer s.Close()
	var turn clock.Turn
	turn.Take(s.Shard(1), 5)
	s.Shard(0).AfterFunc(5, func() {})
	s.Shard(0).AfterFunc(5, func() { s.Shard(0).Go(func() {}) })
	s.Shard(1).AfterFunc(3, func() {})
	s.Shard(1).AfterFunc(9, func() {})
	if events := s.Window(9); events != 1 {
		t.Errorf("%d events asked for others, want 1", events)
	}
	for i, c := range []*clock.Virtual{s.Control(), s.Shard(0), s.Shard(1)} {
		if c.Now() != 8 || !c.Came(turn) {
			t.Errorf("clock %d stands at %d, and the turn has come: %v; want 8, true", i, c.Now(), c.Came(turn))
		}
	}
	if at, ok := s.Next(); at != 9 || !ok || !s.Step() || s.Step() {
		t.Error("one event is left, at 9")
	}
}

// A function that is asked for between a window and the next event runs before that, at whichever distance the shard's queue keeps
// the events behind the window.
func TestAskedForAfterWindow(t *testing.T) {
	const end = 1_010_000
	s := clock.NewShards(2)
	defer s.Close()
	var ran []time.Duration
	note := func() { ran = append(ran, s.Control().Now()) }
	s.Shard(0).AfterFunc(end-10_000, note)
	s.Shard(1).AfterFunc(end+1000, note)
	s.Shard(1).AfterFunc(end+1000, note)
	s.Window(end)
	ran = nil
	s.Shard(1).Go(note)
	for s.Step() {
	}
	if want := []time.Duration{end - 1, end + 1000, end + 1000}; !slices.Equal(ran, want) {
		t.Errorf("ran at %d, want %d", ran, want)
	}
}
