package linkem

import "time"

// How long a packet may wait for those behind it, to be sent with them: no longer
// than gather, and only while each leaves within near of the one before. At 10
// Gb/s, where packets of 4 KiB leave 3.4 us apart and sending one takes as long,
// this is what keeps the rate: those of a super-packet of 15 are sent as one
// again. It makes the median packet of such a stream half of gather late.
const (
	near   = 25 * time.Microsecond
	gather = 60 * time.Microsecond
)

// maxGathered bounds the runs that are looked at: packets of one super-packet
// are many if a rate sets them apart.
const maxGathered = 4 * batchMessages

// schedule sets when the first of the queue is due: together with what leaves
// soon after. Where that ends amid a frame, the rest of which comes later, it
// goes no further than the frame before, so that frames stay whole.
func (n *line) schedule() {
	first := n.queue.first(gather).departs
	soon := n.queue.upcoming()
	n.release = first
	whole := first // when the last frame leaves that is gathered to its end
	for i := 1; i < min(len(soon), maxGathered); i++ {
		last, next := &soon[i-1], &soon[i]
		if next.held != last.held {
			whole = last.departs
		}
		if next.departs > last.departs+near {
			return
		}
		if next.departs > first+gather {
			if next.held != soon[0].held {
				n.release = whole
			}
			return
		}
		n.release = next.departs
	}
}
