package linkem

import (
	"context"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
)

// mostLosses is how many packets the engine remembers that it lost or spoiled, 3 MiB of
// them.
const mostLosses = 1 << 14

// losses are the engine's last decisions that did harm to a packet, on all links. They
// belong to the loop.
type losses struct {
	ring  []impair.Record // decision n is at n % mostLosses once there have been that many
	count uint64
}

// harmed reports whether a packet does not arrive as it was sent, once.
func harmed(v *impair.Verdict) bool {
	return v.Fate != impair.Passes || v.Twice || v.Fault != 0 || v.Flip.Any()
}

// lose remembers the decision on segment i of a frame, which is l.packet.
func (l *loop) lose(n *line, f *frame.Frame, at frame.Layers, i int, arrived time.Duration, v *impair.Verdict) {
	p := l.packet
	if at.RoCE && p.RoCE == nil {
		if id, known := impair.Identify(f.Message(i, at)); known {
			p.RoCE = &id
		}
	}
	r := n.model.Record(&p, arrived, v)
	r.Link, r.Direction = n.link.name, n.direction
	if len(l.losses.ring) < mostLosses {
		l.losses.ring = append(l.losses.ring, r)
	} else {
		l.losses.ring[l.losses.count%mostLosses] = r
	}
	l.losses.count++
}

// all is the decisions, oldest first, and how many there were before.
func (s *losses) all() (records []impair.Record, before uint64) {
	oldest := int(s.count % uint64(max(len(s.ring), 1)))
	return append(append(records, s.ring[oldest:]...), s.ring[:oldest]...), s.count - uint64(len(s.ring))
}

// serveLosses writes the last losses to a file.
func (l *loop) serveLosses(_ context.Context, r *control.Request, seed uint64) error {
	var records []impair.Record
	var before uint64
	if err := l.try(func() error { records, before = l.losses.all(); return nil }); err != nil {
		return err
	}
	text := impair.AppendHeader(nil, seed)
	if before > 0 {
		text = impair.AppendMissing(text, before)
	}
	for i := range records {
		text = records[i].Append(text)
	}
	if _, err := r.Files[0].Write(text); err != nil {
		return control.Errorf(control.Unable, "%v", bare(err))
	}
	return nil
}

// Losses has the engine write its last decisions that did harm to packets to a file: those
// on packets that were lost, doubled or changed, on all links. It is a log of decisions
// (package impair) in which those on others are missing. seed is the lab's.
func (e *Engine) Losses(ctx context.Context, seed uint64, file *os.File) error {
	return methodLosses.Call(ctx, e.conn, seed, file)
}
