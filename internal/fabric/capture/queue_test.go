package capture

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Packets leave in the order of their stamps, those of one stamp in that of their
// arrival, with their bytes.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type packet struct {
			stamp int64
			id    byte
		}
		var q queue
		var waiting []packet
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if first := q.first(); first != nil && rapid.Bool().Draw(t, "remove") {
				if want := waiting[0]; first.stamp != want.stamp || len(first.data) != 10 || first.data[9] != want.id {
					t.Fatalf("stamp %d, bytes %x; want packet %+v", first.stamp, first.data, want)
				}
				q.remove()
				waiting = waiting[1:]
				continue
			}
			p := packet{rapid.Int64Range(0, 20).Draw(t, "stamp"), byte(i)}
			data := make([]byte, 10)
			data[9] = p.id
			q.add(data, p.stamp)
			waiting = append(waiting, p)
			slices.SortStableFunc(waiting, func(a, b packet) int { return int(a.stamp - b.stamp) })
			if q.bytes != 10*len(waiting) {
				t.Fatalf("%d bytes wait, want %d", q.bytes, 10*len(waiting))
			}
		}
	})
}
