package lab

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/rows"
)

// views are those of the bounds that monitors have asked for last.
type views struct {
	mu   sync.Mutex // guards what follows
	kept []*view    // the one that was asked for last is the first
	made uint64
}

// mostViews bounds how many are kept: the page, ndklab top and the exporter have two together.
const mostViews = 4

// of returns the view by bounds.
func (s *views) of(bounds []int64) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v *view
	if i := slices.IndexFunc(s.kept, func(v *view) bool { return slices.Equal(v.bounds, bounds) }); i >= 0 {
		v = s.kept[i]
		s.kept = slices.Delete(s.kept, i, i+1)
	} else {
		s.made++
		v = &view{id: s.made, bounds: bounds, turn: make(chan struct{}, 1)}
	}
	s.kept = slices.Insert(s.kept, 0, v)
	if len(s.kept) > mostViews {
		s.kept = slices.Delete(s.kept, mostViews, len(s.kept))
	}
	return v
}

// A view is the lab as monitors have seen it last that ask by the same bounds, and what that came of. They look one after the
// other, so that the number of a look is that of all changes which it found.
type view struct {
	id     uint64 // unique in the lab
	bounds []int64
	turn   chan struct{} // has a value while somebody looks, who owns what follows

	look     uint64 // the number of the last look; from 1
	standing core.Standing
	handled  uint64                    // core.Lab.Handled, when the core was looked at last
	engines  map[*linkem.Engine]uint64 // the number of each link engine's last answer

	foundNodes []nodeInput // by place in the topology, as are all of these
	foundLinks []foundLink
	places     map[string]int        // of links, by their names in the engine
	owners     map[netip.Addr]string // the nodes that have addresses
	nodes      rows.Table[nodeInput, report.ObservedNode]
	links      rows.Table[linkInput, report.Link]
}

// A nodeInput is all that a node's row comes of, but for what a node has used that has limits.
type nodeInput struct {
	status core.NodeStatus
	life   *life
	answer uint64 // of the agent: node.Observation.Number; 0: it was not asked, or would answer something else each time
	amid   uint64 // the look amid which the core may have changed; 0: it has not
}

// A linkInput is all that a link's row comes of, but for what netem depends on.
type linkInput struct {
	asked  uint64 // the look that found its status
	engine uint64 // the look that found what the engine has measured of it; 0: nothing
	kernel carried
}

// A foundLink is a link as it was found last.
type foundLink struct {
	linkInput // without what the kernel has counted
	status    core.LinkStatus
	halves    []half // of those engines that know it
}

// A half is the statistics that an engine has of a link: all, or where the link is between two hosts, those of one of them.
type half struct {
	engine *linkem.Engine
	both   *[2]linkstats.Statistics
}

// measured returns what the engines have measured of the link; nil: they do not know it.
func (f *foundLink) measured() *[2]linkstats.Statistics {
	switch len(f.halves) {
	case 0:
		return nil
	case 1:
		return f.halves[0].both
	}
	joined := joinHalves(f.halves[0].both, f.halves[1].both)
	return &joined
}

// begin begins a look when others are done, unless ctx ends first.
func (v *view) begin(ctx context.Context) error {
	select {
	case v.turn <- struct{}{}:
		v.look++
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends a look.
func (v *view) end() { <-v.turn }

// see looks at what the core has, and at which lives there are, if that may be something else than at the look before.
func (v *view) see(l *core.Lab, on machines) {
	if v.handled == l.Handled() {
		return
	}
	v.handled = l.Handled()
	was := v.standing.Topology
	v.standing = l.Standing()
	topo := v.standing.Topology
	if topo != was {
		v.nodes.Reset(len(topo.Nodes))
		v.links.Reset(len(topo.Links))
		v.foundNodes, v.foundLinks = make([]nodeInput, len(topo.Nodes)), make([]foundLink, len(topo.Links))
		v.engines, v.places = map[*linkem.Engine]uint64{}, make(map[string]int, len(topo.Links))
		v.owners = map[netip.Addr]string{}
		for i := range topo.Nodes {
			for _, face := range topo.Nodes[i].Interfaces {
				for _, a := range face.Addresses {
					v.owners[a.Addr()] = topo.Nodes[i].Name
				}
			}
		}
		for i := range topo.Links {
			v.places[topo.Links[i].Endpoints[0].String()] = i
		}
	}
	for i := range topo.Nodes {
		name := topo.Nodes[i].Name
		v.foundNodes[i] = nodeInput{status: l.Node(name), life: on.life(name)}
	}
	for i := range topo.Links {
		found, status := &v.foundLinks[i], l.Link(i)
		if found.asked == 0 || !reflect.DeepEqual(&found.status, &status) {
			found.status, found.asked = status, v.look
		}
	}
}

// measure takes what an engine has measured.
func (v *view) measure(engine *linkem.Engine, answer *linkem.Observed) {
	v.engines[engine] = answer.Number
	for name, both := range answer.Links {
		if i, ok := v.places[name]; ok { // the engine also has links that the lab had before
			found := &v.foundLinks[i]
			found.engine = v.look
			at := slices.IndexFunc(found.halves, func(h half) bool { return h.engine == engine })
			if at < 0 {
				at, found.halves = len(found.halves), append(found.halves, half{engine: engine})
			}
			found.halves[at].both = &both
		}
	}
}

// hasNode reports whether the row of a node is what it would be if it was made again.
func (v *view) hasNode(i int, now time.Time) bool {
	of := v.foundNodes[i]
	if of.life != nil && of.life.isLimited() {
		return false
	}
	if of.life != nil && (of.status.State == nodeReady || of.status.State == nodeStarts) {
		last, ok := of.life.client.Observed(now)
		if !ok {
			return false
		}
		of.answer = last.Number
	}
	return v.nodes.Is(i, of)
}
