package trace

import (
	"strings"
	"time"
)

// A Fate says whether a packet arrived.
type Fate string

// The fates.
const (
	Unknown   Fate = "" // nobody tells: the kernel has the link
	Delivered Fate = "delivered"
	Dropped   Fate = "dropped"
)

// overrun is the comment on a packet for which the link engine had no memory.
const overrun = "lost: overrun"

// parseComment takes a capture's comment on a packet apart (docs/topology.md, Captures). Notes on the timeline, which may
// follow or stand alone, are ignored.
func parseComment(p *Packet) (fate Fate, cause string, done []string, delay *float64) {
	if p.Arrived {
		fate = Delivered
	}
	said, _, _ := strings.Cut(p.Comment, "; ")
	if cause, ok := strings.CutPrefix(said, "dropped"); ok {
		return Dropped, strings.TrimPrefix(cause, ": "), nil, nil
	}
	if strings.HasPrefix(said, overrun) {
		return Dropped, strings.TrimPrefix(said, "lost: "), nil, nil
	}
	for part := range strings.SplitSeq(said, ", ") {
		switch first, rest, _ := strings.Cut(part, " "); first {
		case "delayed":
			took, err := time.ParseDuration(rest)
			if err != nil {
				continue // a note that begins with the word
			}
			microseconds := float64(took.Nanoseconds()) / 1e3
			delay = &microseconds
		case "marked", "duplicated", "corrupted", "reordered", "fault", "postponed":
			done = append(done, part)
		default:
			continue
		}
		fate = Delivered
	}
	return fate, "", done, delay
}
