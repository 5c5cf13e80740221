package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// programs are those that run in nodes: of workloads, of the timeline, or of checks.
type programs struct {
	stage   Stage
	topo    *topology.Topology
	loop    *loop
	running map[*program]bool
}

// A program runs in a node.
type program struct {
	cancel func()
}

// run runs a program in a node. done is called when it has ended, with an error if it
// could not be run.
func (p *programs) run(node string, c Command, done func(Exit, error)) *program {
	n := &program{cancel: func() {}}
	if p.loop.interrupted {
		p.loop.clock.Go(p.loop.expect(func() { done(Exit{}, ErrInterrupted) }))
		return n
	}
	p.running[n] = true
	if ready := c.Ready; ready != nil {
		c.Ready = func() {
			p.loop.enter(func() {
				if p.running[n] {
					ready()
				}
			})
		}
	}
	callback := p.loop.awaited()
	n.cancel = p.stage.Exec(node, c, func(e Exit, err error) {
		callback(func() {
			delete(p.running, n)
			done(e, err)
		})
	})
	return n
}

// cancel ends all programs.
func (p *programs) cancel() {
	for n := range p.running {
		n.cancel()
	}
}

// environment returns what a program in a node finds in its environment of the scenario:
// the lab, the node and its peers, which are the others of nodes. The address of each peer
// is one that the node reaches. The node's own is that from which it reaches the first of
// them.
func (p *programs) environment(node string, nodes []string) []string {
	var own netip.Addr
	var addresses []string
	peers := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == node })
	for _, peer := range peers {
		address := "-" // out of reach
		if path, ok := p.topo.Path(node, peer); ok {
			address = path.To.Address.String()
			if !own.IsValid() {
				own = path.From.Address
			}
		}
		addresses = append(addresses, address)
	}
	if n := p.topo.FindNode(node); n != nil && !own.IsValid() && len(n.Interfaces) > 0 && len(n.Interfaces[0].Addresses) > 0 {
		own = n.Interfaces[0].Addresses[0].Addr()
	}
	environment := []string{
		"NDKLAB_LAB=" + p.topo.Name,
		"NDKLAB_NODE=" + node,
		fmt.Sprintf("NDKLAB_SEED=%d", p.topo.Seed),
		"NDKLAB_PEERS=" + strings.Join(peers, " "),
		"NDKLAB_PEER_ADDRESSES=" + strings.Join(addresses, " "),
	}
	if own.IsValid() {
		environment = append(environment, "NDKLAB_ADDRESS="+own.String())
	}
	return environment
}

// problem returns why a program that was to succeed has not, nil if it has.
func (e *Exit) problem(timeout time.Duration) error {
	switch {
	case e.TimedOut:
		return fmt.Errorf("it did not end within %s%s", topology.FormatDuration(timeout), lastLine(e))
	case e.Status != 0:
		return fmt.Errorf("exit status %d%s", e.Status, lastLine(e))
	}
	return nil
}

// lastLine returns the end of what a program has said, to stand behind how it ended.
func lastLine(e *Exit) string {
	for _, text := range []string{e.Errors, e.Output} {
		text = strings.TrimSpace(text)
		if line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]); line != "" {
			return ": " + line
		}
	}
	return ""
}
