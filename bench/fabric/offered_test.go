package main

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
)

// A link of 80 Mb/s passes 10,000 bytes in a millisecond.
func TestBlame(t *testing.T) {
	const asked, first, length = 80e6, 1_000_000, 1000
	for _, c := range []struct {
		name   string
		passes uint64            // bytes in a millisecond, if it has so many
		offers func(ms int) bool // whether the sender keeps the link full
		why    string
		rate   float64 // while it is full
		share  float64
	}{
		{"a slow link", 8_000, func(int) bool { return true }, "", 64e6, 1},
		{"a slow sender", 10_000, func(int) bool { return false }, "not offered", 0, 0},
		{"a sender that pauses", 10_000, func(ms int) bool { return ms%100 < 50 }, "not offered", 80e6, 0.51},
		{"both", 9_000, func(ms int) bool { return ms%100 < 50 }, "", 72e6, 0.51},
		{"a link that is a little slow when there is something to do", 9_000, func(ms int) bool { return ms%100 < 8 }, "not offered", 72e6, 0.09},
	} {
		var sent, passed By
		inside := uint64(0)
		for ms := range length {
			gives := uint64(3_000)
			if c.offers(ms) {
				gives = 30_000 - min(inside, 30_000)
			}
			takes := min(c.passes, inside+gives)
			inside += gives - takes
			at := int64(first+ms) * int64(time.Millisecond)
			sent.add(at, gives)
			passed.add(at+999_999, takes)
		}
		begin, end := int64(first)*int64(time.Millisecond), int64(first+length)*int64(time.Millisecond)
		rate, share := whileFull(&sent, &passed, asked, begin, end)
		if math.Abs(rate-c.rate) > 1 || math.Abs(share-c.share) > 0.02 {
			t.Errorf("%s: full for %.3f of the time, and passed %.0f b/s then, want %.3f and %.0f", c.name, share, rate, c.share, c.rate)
		}
		if why, explanation := blame(&sent, &passed, asked, begin, end); why != c.why || explanation == "" {
			t.Errorf("%s: %q (%s), want %q", c.name, why, explanation, c.why)
		}
	}
}

// The best part of the time shows what a link can, and no pause excuses a link that is too
// fast: neither its own nor its sender's. Where the sender pauses nothing is known.
func TestBestAndExcess(t *testing.T) {
	const asked, length = 80e6, 1000
	always := func(int) bool { return true }
	for _, c := range []struct {
		name   string
		offers func(ms int) bool   // whether the sender keeps the link full
		passes func(ms int) uint64 // bytes in a millisecond, if it has so many
		best   float64
		ahead  float64 // at least; 0: not at all
	}{
		{"as asked", always, func(int) uint64 { return 10_000 }, 80e6, 0},
		{"too slow", always, func(int) uint64 { return 9_000 }, 72e6, 0},
		{"with pauses", always, func(ms int) uint64 {
			if ms%500 < 250 {
				return 0
			}
			return 10_000
		}, 80e6, 0},
		{"too fast", always, func(int) uint64 { return 10_100 }, 80.8e6, 90_000},
		{"too fast after a pause of the sender", func(ms int) bool { return ms >= 500 }, func(int) uint64 { return 10_100 }, 80.8e6, 40_000},
		{"too fast where the sender pauses", func(ms int) bool { return ms >= 500 || ms%50 < 25 }, func(ms int) uint64 {
			if ms < 500 {
				return 11_000
			}
			return 9_000
		}, 72e6, 20_000},
		{"a sender that pauses", func(ms int) bool { return ms%50 < 25 }, func(int) uint64 { return 10_000 }, 0, 0},
	} {
		var sent, passed By
		inside := uint64(0)
		for ms := range length {
			gives := uint64(0)
			if c.offers(ms) {
				gives = 40_000 - min(inside, 40_000)
			}
			inside += gives
			takes := min(c.passes(ms), inside)
			inside -= takes
			sent.add(int64(ms)*int64(time.Millisecond), gives)
			passed.add(int64(ms)*int64(time.Millisecond), takes)
		}
		got, ahead := best(&sent, &passed, asked, 0, length*int64(time.Millisecond), 8), excess(&sent, &passed, asked)
		if math.Abs(got-c.best) > 1 || ahead < c.ahead || c.ahead == 0 && ahead > 0 {
			t.Errorf("%s: best %.0f, ahead by %.0f; want %.0f and %.0f", c.name, got, ahead, c.best, c.ahead)
		}
	}
}

// Only what the first end sent is on its way to the other.
func TestBytesAreThoseOfTheSender(t *testing.T) {
	w, err := newWire("0s", "1s")
	if err != nil {
		t.Fatal(err)
	}
	const second = int64(time.Second / time.Millisecond)
	there, back := made(17, 1000, 0), made(17, 2000, 0)
	copy(there[frame.HeaderLen+26:], addresses[0].AsSlice())
	copy(back[frame.HeaderLen+26:], addresses[1].AsSlice())
	arp := make([]byte, frame.HeaderLen+60)
	binary.BigEndian.PutUint16(arp[frame.HeaderLen+12:], 0x0806)
	for _, b := range [][]byte{there, back, arp, there} {
		w.see(int64(time.Second), b)
	}
	w.see(int64(time.Second)+int64(3*time.Millisecond), there)
	w.see(0, there)             // the clock was set
	w.see(math.MaxInt64, there) // likewise
	if y := &w.Sent; y.First != second || y.in(second) != 2*1066 || y.in(second+1) != 0 || y.in(second+3) != 1066 || y.in(second-1) != 0 || y.in(second+4) != 0 {
		t.Errorf("%+v", y)
	}
}
