package impair

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// TestPlain: carry decides as decide would, whichever settings come before and after.
func TestPlain(t *testing.T) {
	settings := []topology.Impairment{
		{},
		{Delay: time.Millisecond},
		{Rate: 1e9},
		{Delay: 10 * time.Microsecond, Rate: 3e8, Burst: 5000, Queue: topology.Queue{Packets: 7}},
		{Delay: 10 * time.Microsecond, Rate: 7e8, Queue: topology.Queue{Bytes: 9000}},
		{Delay: 10 * time.Microsecond, Rate: 1e9, ECN: topology.ECN{Min: 1000, Max: 5000}},
		{Delay: 10 * time.Microsecond, Rate: 1e9, Jitter: topology.Jitter{Spread: 5 * time.Microsecond}},
		{Delay: 10 * time.Microsecond, Reorder: topology.Reorder{Probability: 0.3, Depth: 3}},
		{Rate: 1e9, Loss: topology.Loss{Every: 3}},
		{Rate: 1e9, Loss: topology.Loss{Rate: 0.2, Burst: 2}},
		{Rate: 1e9, Duplicate: 0.3},
		{Rate: 1e9, Corrupt: topology.Corrupt{Probability: 0.3, Bits: 1}},
		{Rate: 1e9, Cut: true},
		{Rate: 1e9, Flap: topology.Flap{Period: 50 * time.Microsecond, Down: 20 * time.Microsecond}},
		{Rate: 1e9, Faults: []topology.Fault{{Action: topology.Drop}}},
	}
	random := rand.New(rand.NewPCG(1, 1))
	d, reference := New(1, "a link", 0), New(1, "a link", 0)
	now := time.Duration(0)
	plain, fates := 0, map[Fate]int{}
	for range 2000 {
		s := settings[random.IntN(len(settings))]
		d.Set(s, now)
		reference.Set(s, now)
		reference.plain = false
		for range random.IntN(20) {
			p := Packet{Frame: 40 + random.IntN(1500), ECT: random.IntN(2) == 0, Payload: 14, RoCE: &Identity{}}
			v, want := d.Packet(&p, now), reference.Packet(&p, now)
			packets, bytes := d.Backlog()
			if wantPackets, wantBytes := reference.Backlog(); v != want || packets != wantPackets || bytes != wantBytes || d.FreeAt() != reference.FreeAt() {
				t.Fatalf("of %+v: %+v with %d bytes behind it, want %+v with %d", s, v, bytes, want, wantBytes)
			}
			if d.plain {
				plain++
				fates[v.Fate]++
			}
			now += time.Duration(random.IntN(20_000))
		}
	}
	if a, b := d.Asked(), reference.Asked(); !reflect.DeepEqual(a, b) {
		t.Errorf("asked for %+v, want %+v", a, b)
	}
	if plain < 1000 || fates[Passes] == 0 || fates[QueueFull] == 0 {
		t.Errorf("%d packets were decided on by carry: %v", plain, fates)
	}
}
