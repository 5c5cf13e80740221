package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// A pair is a lab of two nodes, a and b, and a link.
type pair struct {
	*lab.Lab
	a, b place
}

// Addresses of the ends, in labs and rigs alike.
var addresses = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}

// seed of everything that is random.
const seed = 42

// mtu of every link, bytes: a RoCE packet carries 4 KiB.
const mtu = 4200

var labs atomic.Int32 // how many were started

func labName() string { return fmt.Sprintf("bench-%d-%d", os.Getpid(), labs.Add(1)) }

// pairTopology returns a pair whose link does the same both ways.
func (b *bench) pairTopology(impairment topology.Impairment) *topology.Topology {
	topo := &topology.Topology{Name: labName(), Seed: seed, HasSeed: true}
	b.join(topo, "a", "b", impairment)
	return topo
}

// join adds a link between two nodes, which are made if they are not there yet.
func (b *bench) join(topo *topology.Topology, from, to string, impairment topology.Impairment) {
	index := len(topo.Links)
	l := topology.Link{MTU: mtu, Engine: topology.Engine(b.engine), Offload: b.engine == "linkem", Directions: [2]topology.Impairment{impairment, impairment}}
	for end, name := range []string{from, to} {
		var n *topology.Node
		for i := range topo.Nodes {
			if topo.Nodes[i].Name == name {
				n = &topo.Nodes[i]
			}
		}
		if n == nil {
			topo.Nodes = append(topo.Nodes, topology.Node{Name: name})
			n = &topo.Nodes[len(topo.Nodes)-1]
		}
		address := netip.AddrFrom4([4]byte{10, byte(index >> 8), byte(index), byte(end + 1)})
		n.Interfaces = append(n.Interfaces, topology.Interface{
			Name: fmt.Sprintf("eth%d", len(n.Interfaces)), Link: index, End: end,
			Addresses: []netip.Prefix{netip.PrefixFrom(address, 24)},
		})
		l.Endpoints[end] = topology.Endpoint{Node: name, Interface: n.Interfaces[len(n.Interfaces)-1].Name}
	}
	topo.Links = append(topo.Links, l)
}

// startPair starts a lab of the topology, whose nodes are a and b.
func startPair(ctx context.Context, topo *topology.Topology) (*pair, error) {
	l, err := lab.Start(ctx, topo, lab.Options{})
	if err != nil {
		return nil, err
	}
	in := func(name string) place {
		return func(ctx context.Context, args []string, stdin, stdout, stderr *os.File) error {
			status, err := l.Nodes.Exec(ctx, name, node.Command{Args: args}, stdin, stdout, stderr)
			if err == nil && status != 0 && ctx.Err() == nil {
				err = fmt.Errorf("status %d", status)
			}
			return err
		}
	}
	return &pair{Lab: l, a: in("a"), b: in("b")}, nil
}

// withPair runs f with a pair of the topology.
func withPair(ctx context.Context, topo *topology.Topology, f func(*pair) error) (err error) {
	p, err := startPair(ctx, topo)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := p.Close(); err == nil {
			err = closeErr
		}
	}()
	return f(p)
}
