package diff

import (
	"fmt"
	"reflect"

	"github.com/ndklab/ndklab/topology"
)

// A buffered is all of a node that packet buffers are made by, once: the link engine does not make them again.
type buffered struct {
	Buffer      *topology.Buffer
	Priorities  *topology.Priorities
	Watchdog    *topology.Watchdog
	PFC         *[]uint32
	ReceiveRate *uint64
	Receives    *uint32        // the buffer of one that has such a rate
	Links       []bufferedLink // in the order of the node's interfaces
}

type bufferedLink struct {
	Interface string
	Peer      topology.Endpoint
	MTU       int
}

// compareBuffers returns a *RefusedError if a node at a packet buffer, or with one, has others in one topology than in the
// other.
func compareBuffers(was, is *topology.Topology) error {
	before, after := buffers(was), buffers(is)
	for _, of := range []*topology.Topology{was, is} {
		for i := range of.Nodes {
			name := of.Nodes[i].Name
			if !reflect.DeepEqual(before[name], after[name]) {
				return &RefusedError{fmt.Sprintf("packet buffers change, or the links at them, at node %s", name)}
			}
		}
	}
	return nil
}

// buffers returns the nodes at the links of packet buffers, by name.
func buffers(t *topology.Topology) map[string]*buffered {
	nodes := map[string]*buffered{}
	links := t.BufferedLinks()
	for i := range t.Nodes {
		n := &t.Nodes[i]
		var b *buffered
		for _, face := range n.Interfaces {
			if !links[face.Link] {
				continue
			}
			if b == nil {
				b = &buffered{n.Buffer, n.Priorities, n.Watchdog, n.Adapter.PFC, n.Adapter.ReceiveRate, nil, nil}
				if n.Adapter.ReceiveRate != nil {
					b.Receives = n.Adapter.ReceiveBuffer
				}
				nodes[n.Name] = b
			}
			l := &t.Links[face.Link]
			b.Links = append(b.Links, bufferedLink{face.Name, l.Endpoints[1-face.End], l.MTU})
		}
	}
	return nodes
}
