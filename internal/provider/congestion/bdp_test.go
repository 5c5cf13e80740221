package congestion

import (
	"testing"
	"time"
)

// expectWindow fails the test unless so many packets of 1,000 bytes may be in flight.
func expectWindow(t *testing.T, c Control, want float64) {
	t.Helper()
	if got := float64(c.Window()) / 1000; got != want {
		t.Errorf("%v packets may be in flight, want %v", got, want)
	}
}

// TestBDPOfAGivenRoundTrip has the figures of IRN's default: 40 Gb/s and 24 us, which it gives as 120 KB and some 110 packets
// of 1 KB with their headers.
func TestBDPOfAGivenRoundTrip(t *testing.T) {
	for _, c := range []struct {
		rate   float64
		rtt    time.Duration
		packet int
		want   int64 // packets
	}{
		{40e9, 24 * us, 1000, 120},
		{40e9, 24 * us, 1091, 110},
		{10e9, 12 * us, 4178, 4}, // 3.6
		{10e9, 12 * us, 1000, 15},
		{10e9, 12*us + 1, 1000, 16},
		{10e9, us, 4178, 1},
		{0, 12 * us, 1000, 15}, // as 10 Gb/s
	} {
		b := NewBDP(&BDP{RTT: c.rtt}, c.rate, c.packet)
		for range 2 {
			if got := b.Window(); got != c.want*int64(c.packet) {
				t.Errorf("%+v: %d bytes, want %d packets", c, got, c.want)
			}
			b.Acknowledged(0, Ack{RTT: us, Bytes: 1000}) // a given one stands
		}
	}
}

// TestBDPOfTheLeastMean: it is four packets before there is any.
func TestBDPOfTheLeastMean(t *testing.T) {
	b := NewBDP(&BDP{}, 8e9, 1000) // a packet takes 1 us
	expectWindow(t, b, 4)
	for _, c := range []struct {
		rtt  time.Duration
		want float64
	}{{0, 4}, {32 * us, 32}, {40 * us, 32}, {0, 32}, {25 * us, 32}, {24 * us, 31}, {24 * us, 31}, {16 * us, 29}, {60 * us, 29}, {9 * us, 29}} {
		b.Acknowledged(0, Ack{RTT: c.rtt, Bytes: 1000})
		expectWindow(t, b, c.want)
	}
}

// TestBDPMindsNothingElse: neither marks nor losses change it, and it has no rate.
func TestBDPMindsNothingElse(t *testing.T) {
	b := NewBDP(&BDP{RTT: 12 * us}, 10e9, 1000)
	b.Notified(0)
	b.Lost(0)
	b.Sent(0, 1000)
	expectWindow(t, b, 15)
	if _, ok := b.Deadline(); ok || b.Rate(0) != 0 {
		t.Errorf("rate %v, deadline %v", b.Rate(0), ok)
	}
}
