package lab

import (
	"context"
	"os"
	"sync"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
)

// A linkDriver carries out actions on links and switches, and has what it found of them, and of externals, on this machine.
type linkDriver struct {
	engine  engine
	nodes   *nodeDriver // whose namespaces links end in
	publish func(event.Event)

	// The following fields are set before the first action.
	place     place
	named     bool   // externals get names for ip netns
	seed      uint64 // the lab's
	network   *link.Network
	root      string               // the path by which the host reaches the sockets of externals: that of this process's root; "": they are the host's files
	sockets   *os.File             // the directory of the externals' sockets; nil without externals
	externals map[string]*external // by the name of the interface

	mu       sync.Mutex        // guards what follows
	far      map[string]string // the hosts of the nodes that are at other hosts; nil: there is no other host
	bridges  map[string]int    // numbers that switches are to have
	links    map[int]*labLink  // by topology.Link.Number
	switches map[string]*labSwitch
	routes   map[string][]topology.Route // by router with a packet buffer
	buffered map[int]bool                // by topology.Link.Number: links that the engine carries as long as they are there (buffers.go)
}

// action returns how to carry out an action on a link; nil if it is none.
func (d *linkDriver) action(a core.Action) func() core.Done {
	on := func(spec *topology.Link, do func(*labLink) core.Done) func() core.Done {
		l := d.link(spec)
		return func() core.Done {
			l.acting.Lock()
			defer l.acting.Unlock()
			l.spec = spec
			done := do(l)
			done.Agent = done.Err != nil && d.nodes.ending(spec)
			return done
		}
	}
	failing := func(spec *topology.Link, do func(*labLink) error) func() core.Done {
		return on(spec, func(l *labLink) core.Done { return core.Done{Err: do(l)} })
	}
	switch a := a.(type) {
	case core.MakeEnds:
		return failing(a.Link, func(l *labLink) error { return l.makeEnds(a) })
	case core.RemoveEnd:
		return failing(a.Link, func(l *labLink) error { return l.removeEnd(a.End) })
	case core.ResizeLink:
		return failing(a.Link, func(l *labLink) error { return d.network.SetMTU(a.Link.Number, a.Link.MTU, d.ends(a.Link)) })
	case core.Impair:
		return failing(a.Link, func(l *labLink) error { return l.impair(a.Asked) })
	case core.SetImpairment:
		return failing(a.Link, func(l *labLink) error { return l.carrier().set(l, a.Direction, a.To) })
	case core.AwaitIdle:
		carrier := d.carrierFor(a.Link)
		return func() core.Done {
			return core.Done{Err: carrier.idle(context.Background(), a.Link.Endpoints[0].String())}
		}
	case core.ReleaseLink:
		return on(a.Link, func(l *labLink) core.Done {
			late, err := l.relieve()
			return core.Done{Err: err, Late: late}
		})
	case core.Connect:
		return failing(a.Link, (*labLink).connect)
	case core.Disconnect:
		return failing(a.Link, (*labLink).disconnect)
	case core.TakeApart:
		return failing(a.Link, (*labLink).takeApart)
	}
	return nil
}

// link returns what there is of a link.
func (d *linkDriver) link(spec *topology.Link) *labLink {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.links[spec.Number]
	if l == nil {
		l = &labLink{linkDriver: d, gone: make(chan struct{}), spec: spec}
		d.links[spec.Number] = l
		for end, e := range spec.Endpoints {
			if host := d.far[e.Node]; host != "" {
				l.host, l.far[end] = host, true
				d.network.Lone(spec.Number, 1-end)
			}
		}
	}
	return l
}

// forget forgets a link that is in the lab no more.
func (d *linkDriver) forget(number int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.links[number]; l != nil {
		close(l.gone)
		delete(d.links, number)
	}
	d.network.Forget(number)
}

// known returns what there is of a link; nil if nothing was done with it.
func (d *linkDriver) known(number int) *labLink {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.links[number]
}

// isFar reports whether a node is at another host.
func (d *linkDriver) isFar(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.far[node] != ""
}

// setBridge has a switch that is made later have a bridge of that number, if none has it.
func (d *linkDriver) setBridge(name string, number int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bridges == nil {
		d.bridges = map[string]int{}
	}
	d.bridges[name] = number
}

// setFar notes the nodes that are at other hosts.
func (d *linkDriver) setFar(hosts map[string]string, here string) {
	far := make(map[string]string, len(hosts))
	for node, host := range hosts {
		if host != here {
			far[node] = host
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.far = far
}

// ends returns a link's ends as the network takes them. One in a host or router is in the network that the node has by then.
func (d *linkDriver) ends(spec *topology.Link) (ends [2]link.End) {
	for end, e := range spec.Endpoints {
		ends[end] = link.End{Interface: e.Interface, Wire: !spec.Offload}
		if d.isFar(e.Node) {
			continue // nothing is made there
		}
		if e.External() {
			ends[end].Outside = d.externals[e.Interface].namespace
		} else if sw := d.switchOf(e.Node); sw != nil {
			ends[end].Bridge, ends[end].Stub = sw.bridge, sw.bridge == nil
		} else if l := d.nodes.life(e.Node); l != nil { // else it is still to be started
			ends[end].Network = l.agent.Network
		}
	}
	return ends
}
