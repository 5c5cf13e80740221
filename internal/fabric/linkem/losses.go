package linkem

import (
	"context"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
)

// mostLosses bounds the number of decisions that are kept: 3 MiB.
const mostLosses = 1 << 14

// losses are the last decisions on packets that did not arrive as they were sent, on all
// links. They belong to the loop's thread.
type losses struct {
	ring  []impair.Record // decision n is at n % mostLosses once there have been that many
	count uint64
}

// damages reports whether a packet does not arrive as it was sent, once.
func damages(v *impair.Verdict) bool {
	return v.Fate != impair.Passes || v.Twice || v.Fault != 0 || v.Flip.Any()
}

// recordLoss keeps the decision on segment i of a frame, which is in.packet.
func (in *ingress) recordLoss(n *line, f *frame.Frame, at frame.Layers, i int, arrived time.Duration, v *impair.Verdict) {
	p := in.packet
	if at.RoCE && p.RoCE == nil {
		if id, known := impair.Identify(f.Message(i, at)); known {
			p.RoCE = &id
		}
	}
	r := n.model.Record(&p, arrived, v)
	r.Link, r.Direction = n.link.name, n.direction
	in.losses.add(&r)
}

// add keeps a decision, in the place of the oldest if need be.
func (s *losses) add(r *impair.Record) {
	if len(s.ring) < mostLosses {
		s.ring = append(s.ring, *r)
	} else {
		s.ring[s.count%mostLosses] = *r
	}
	s.count++
}

// all returns the decisions, oldest first, and how many there were before.
func (s *losses) all() (records []impair.Record, before uint64) {
	oldest := int(s.count % uint64(max(len(s.ring), 1)))
	return append(append(records, s.ring[oldest:]...), s.ring[:oldest]...), s.count - uint64(len(s.ring))
}

// writeLosses writes the last losses to a file.
func (s *service) writeLosses(_ context.Context, r *control.Request, seed uint64) error {
	var records []impair.Record
	var before uint64
	if err := s.commands.do(func() error { records, before = s.ingress.losses.all(); return nil }); err != nil {
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
		return control.Errorf(control.Unable, "%v", withoutName(err))
	}
	return nil
}
