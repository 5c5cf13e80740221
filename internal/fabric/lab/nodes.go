package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// A nodeAPI answers what commands and runs ask of nodes: of their agents, and of how they fare.
type nodeAPI struct {
	*driver
	lab string
}

// withProcesses returns the hosts and routers of a topology.
func withProcesses(topo *topology.Topology) (specs []*topology.Node) {
	for i := range topo.Nodes {
		if spec := &topo.Nodes[i]; spec.Kind != topology.Switch {
			specs = append(specs, spec)
		}
	}
	return specs
}

// agent returns the agent of a host or router that is up. Of one that somebody has stopped or paused, the error
// says how to bring it back.
func (a *nodeAPI) agent(name string) (*node.Client, error) {
	l, err := a.alive(name)
	if err == nil {
		return l.client, nil
	}
	a.look(func(l *core.Lab) {
		if _, command := l.StateByHand(name); command != "" && a.machines.life(name) != nil { // which no switch has
			err = control.Errorf(control.Usage, "%v: `%s` brings it back", err, command)
		}
	})
	return nil, err
}

// host returns the life of a host, which must be up. Only hosts have adapters.
func (a *nodeAPI) host(name string) (*life, error) {
	if spec := a.topology().FindNode(name); spec != nil && (spec.Kind == topology.Switch || spec.Kind == topology.Router) {
		return nil, control.Errorf(control.Usage, "%s is a %s: it has no adapter", name, spec.Kind)
	}
	if _, err := a.agent(name); err != nil {
		return nil, err
	}
	return a.alive(name)
}

// pick returns the host of that name, which must be up; all hosts for "".
func (a *nodeAPI) pick(name string) ([]*topology.Node, error) {
	topo := a.topology()
	if name == "" {
		return slices.DeleteFunc(withProcesses(topo), func(n *topology.Node) bool { return n.Kind == topology.Router }), nil
	}
	if _, err := a.host(name); err != nil {
		return nil, err
	}
	return []*topology.Node{topo.FindNode(name)}, nil
}

// The states of a node.
const (
	nodeReady  = core.NodeIsReady
	nodeStarts = core.NodeIsStarting
	nodeDown   = core.NodeIsDown
	nodePaused = core.NodeIsPaused
	nodeMute   = core.NodeIsUnresponsive
)

// nodeState returns the state of a host or router, as far as it is known without asking it.
func (a *nodeAPI) nodeState(name string) report.NodeState {
	return stateOfNode(name, a.node(name))
}

func stateOfNode(name string, status core.NodeStatus) report.NodeState {
	return report.NodeState{Name: name, State: status.State, Reason: status.Reason}
}

// askNodes makes a request of each of some nodes, all of which is answered soon, and
// says in what state the node was found, and why if that is not ready.
func (a *nodeAPI) askNodes(ctx context.Context, nodes []*topology.Node, request func(ctx context.Context, i int, agent *node.Client) error) []report.NodeState {
	states := make([]report.NodeState, len(nodes))
	// The states tell of errors.
	_ = parallel(ctx, requestsAtOnce, len(nodes), func(ctx context.Context, i int) error {
		name := nodes[i].Name
		l, err := a.alive(name)
		if states[i] = a.nodeState(name); err != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		err = request(ctx, i, l.client)
		switch {
		case err == nil:
			states[i] = report.NodeState{Name: name, State: nodeReady}
		case errors.Is(err, control.ErrClosed):
			<-l.down // which says why, and is not far behind
			states[i].State, states[i].Reason = nodeDown, l.reason
		case errors.Is(err, context.DeadlineExceeded):
			if states[i] = a.nodeState(name); states[i].State != nodeReady { // it was paused meanwhile
				return nil
			}
			states[i].State, states[i].Reason = nodeMute, fmt.Sprintf("its agent does not answer within %v", answerTime)
		default:
			states[i].State, states[i].Reason = nodeReady, err.Error()
		}
		return nil
	})
	return states
}

// inspectAll returns the state of every node of the lab's topology, in its order.
func (a *nodeAPI) inspectAll(ctx context.Context, topo *topology.Topology) []report.Node {
	agents := a.inspectNodes(ctx, withProcesses(topo))
	ports, err := a.machines.ports()
	if err == nil {
		err = a.addBufferPorts(ctx, topo, ports)
	}
	nodes := make([]report.Node, 0, len(topo.Nodes))
	for i := range topo.Nodes {
		spec := &topo.Nodes[i]
		if spec.Kind != topology.Switch {
			nodes = append(nodes, agents[0])
			agents = agents[1:]
			a.amendState(&nodes[i].NodeState)
			continue
		}
		nodes = append(nodes, inspectSwitch(topo, spec, a.node(spec.Name), ports))
		if err != nil {
			nodes[i].Reason = err.Error()
		}
	}
	return nodes
}

// amendState has a node that has answered be starting if it is, to the lab.
func (a *nodeAPI) amendState(found *report.NodeState) {
	if status := a.node(found.Name); found.State == nodeReady && status.State == nodeStarts {
		found.State, found.Reason = nodeStarts, status.Reason
	}
}

// inspectNodes returns the state of hosts and routers.
func (a *nodeAPI) inspectNodes(ctx context.Context, nodes []*topology.Node) []report.Node {
	counters := make([]node.Counters, len(nodes))
	states := a.askNodes(ctx, nodes, func(ctx context.Context, i int, agent *node.Client) (err error) {
		counters[i], err = agent.Counters(ctx)
		return err
	})
	figures, err := a.bufferFigures(ctx)
	if err != nil {
		log.Printf("counters of pauses: %v", err) // those of agents are right without
	}
	inspected := make([]report.Node, len(nodes))
	for i, spec := range nodes {
		r := &inspected[i]
		*r = a.describe(spec, states[i], &counters[i])
		for _, face := range spec.Interfaces {
			for _, a := range face.Addresses {
				r.Addresses = append(r.Addresses, a.String())
			}
		}
		for name, n := range figures.Counters[spec.Name] {
			r.Transport[name] += n
		}
	}
	return inspected
}

// describe returns a host or router, without its addresses, which was found in a state and has counted
// so much.
func (a *nodeAPI) describe(spec *topology.Node, state report.NodeState, counted *node.Counters) report.Node {
	status := a.node(spec.Name)
	r := report.Node{NodeState: state, Kind: kindOf(spec), Addresses: []string{}, Counters: map[string]uint64{}, Transport: map[string]uint64{}, Restarts: status.Restarts}
	if l := a.machines.life(spec.Name); l != nil {
		r.Limits, r.Usage = l.usage()
		if r.State != nodeDown {
			r.PID = int(l.hostPID.Load())
		}
	}
	if r.State != nodeDown && status.Health != "" {
		r.Health = &report.Health{State: status.Health, Failures: status.Failures, Reason: status.Output}
	}
	if counted.NDK != nil {
		r.Counters, r.Transport = counted.NDK, counted.Transport
	}
	return r
}

// kindOf returns what a host or router is, for reports.
func kindOf(spec *topology.Node) string {
	if spec.Kind == topology.Router {
		return string(topology.Router)
	}
	return string(topology.Host)
}

// requestsAtOnce bounds the requests under way of those that are made to many nodes or
// of many links: others do the work.
const requestsAtOnce = 16

// parallel calls f for 0 to n-1, several at once, and returns the first error,
// upon which no more calls begin and those under way have their ctx cancelled.
func parallel(ctx context.Context, width, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(width, n) {
		workers.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err) // the first cause is kept
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
