package topology

import "cmp"

// MaxDilation is the most that a lab is slowed down: then a second of its fabric takes 17 minutes.
const MaxDilation = 1000

// DilationFactor returns Dilation, or 1 where there is none.
func (t *Topology) DilationFactor() int { return cmp.Or(t.Dilation, 1) }

// dilation returns the Dilation that the file or Options give, and refuses links that it leaves as fast as they are.
func (r *reader) dilation(t *Topology, v val[int]) int {
	factor := cmp.Or(r.Dilation, v.is)
	if factor <= 1 {
		return 0
	}
	for i := range t.Links {
		if l := &t.Links[i]; l.Engine == Netem {
			at := l.EngineAt
			r.errorAt(at.Line, at.Column, "link %s to %s: netem knows no dilation, and the lab has one of %d, expected engine: linkem, or no dilation", l.Endpoints[0], l.Endpoints[1], factor)
		}
	}
	return factor
}
