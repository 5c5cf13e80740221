package linkem

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

func TestStreamIsWhatBringsMuchForSomeTime(t *testing.T) {
	const much, little = 2 * streamBytes, streamBytes / 2
	var s stream
	now := time.Duration(0)
	for _, c := range []struct {
		what  string
		bytes int
		after time.Duration
		want  bool
	}{
		{"nothing yet", 0, streamWindow, false},
		{"much, in a window that is not over", much, streamWindow / 2, false},
		{"the rest of the window", 0, streamWindow / 2, true},
		{"a pause of less than a window", 0, streamWindow / 2, true},
		{"more after it", much, streamWindow / 2, true},
		{"little", little, streamWindow, false},
		{"much again", much, streamWindow, true},
		{"much, but a long time later", much, time.Second, false},
	} {
		now += c.after
		s.bytes += c.bytes
		if got := s.goesOn(now); got != c.want {
			t.Fatalf("%s: a stream: %v, want %v", c.what, got, c.want)
		}
	}
}

// A rest ends with the departure that is due first, and does not begin while
// frames wait.
func TestRestEndsWithDeparture(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Hour})
	b.arrive(t, superPacket(15, 4096))
	slept := func() time.Duration {
		b.timeout = unix.Timespec{}
		_, err := b.rest(b.now())
		must(t, err)
		return time.Duration(b.timeout.Nano())
	}
	if got := slept(); got != rest {
		t.Errorf("slept for %v before a departure in an hour, want %v", got, rest)
	}
	b.departures[0].release = b.now() + rest/2
	if got := slept(); got <= 0 && b.departures[0].release > b.now() || got > rest/2 {
		t.Errorf("slept for %v before a departure in %v", got, rest/2)
	}
	b.departures[0].release = b.now()
	if got := slept(); got != 0 {
		t.Errorf("slept for %v when a departure was due", got)
	}
	b.departures[0].release = b.now() + time.Hour
	b.more = true
	if got := slept(); got != 0 {
		t.Errorf("slept for %v while frames waited", got)
	}
}

// Frames that arrive are counted, so that many of them are a stream.
func TestArrivalsMakeStream(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	raw := superPacket(15, 4096)
	for range streamBytes/len(raw) + 1 {
		b.arrive(t, raw)
	}
	if !b.stream.goesOn(b.stream.since + streamWindow) {
		t.Error("frames that arrived make no stream")
	}
}
