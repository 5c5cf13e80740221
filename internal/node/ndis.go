package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
)

// This file answers what administrators ask of an adapter, as NDIS has it: what it is and
// can do, who is connected, and whether it is enabled.

// The requests about the adapter.
var (
	methodAdapter     = control.NewMethod[control.None, *adapter.State]("adapter") // nil in a node without one
	methodConnections = control.NewMethod[control.None, []adapter.Connection]("connections")
	methodSetState    = control.NewMethod[bool, StateChange]("set-state") // whether to enable
)

// A StateChange says what enabling or disabling a node's adapter has done.
type StateChange struct {
	Lab     string `json:"lab"` // "" from an agent, which does not know it
	Node    string `json:"node"`
	Was     bool   `json:"was_enabled"`
	Enabled bool   `json:"enabled"`        // now
	Open    int    `json:"instances"`      // of the adapter that consumers had open before
	Left    int    `json:"instances_left"` // that they have open still
}

// Adapter returns the state of the node's adapter; nil if it has none.
func (c *Client) Adapter(ctx context.Context) (*adapter.State, error) {
	return call(ctx, c, methodAdapter, nil)
}

// Connections lists the adapter's connections, those being made and ended
// included, and then its listeners and shared endpoints, each in the order of
// their addresses.
func (c *Client) Connections(ctx context.Context) ([]adapter.Connection, error) {
	return call(ctx, c, methodConnections, nil)
}

// SetState enables or disables the adapter. Disabling asks every consumer to close
// its instances, and waits for that; enabling waits for instances from before the
// adapter was disabled. Neither waits longer than stateChangeTime.
func (c *Client) SetState(ctx context.Context, enabled bool) (StateChange, error) {
	return call(ctx, c, methodSetState, enabled)
}

// stateChangeTime is the time that consumers have to close their instances before
// SetState says that they have not.
const stateChangeTime = 5 * time.Second

// sharedAdapter returns the node's adapter; nil before it is started, and in a node
// without one.
func (a *agent) sharedAdapter() *lease.Server {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shared
}

func (a *agent) describe(context.Context, *control.Request, control.None) (*adapter.State, error) {
	shared := a.sharedAdapter()
	if shared == nil {
		return nil, nil
	}
	return adapter.Describe(shared.Device(), interfaceNames()), nil
}

var errNoAdapter = control.Errorf(control.Usage, "the node has no adapter: it has no address")

func (a *agent) connections(ctx context.Context, _ *control.Request, _ control.None) ([]adapter.Connection, error) {
	list := []adapter.Connection{}
	s := a.sharedAdapter()
	if s == nil {
		return list, nil
	}
	interfaces := interfacesByAddress()
	connections, pairs := connectionsOf(ctx, s)
	for _, c := range connections {
		n := a.entry(adapter.ActiveConnection, interfaces[c.Local.Addr()], c.UserModeOwner, c.OwnerPID)
		n.Local, n.Remote, n.State, n.QPN, n.RemoteQPN = text(c.Local), text(c.Remote), c.State, c.QPN, c.RemoteQPN
		if c.pair != nil {
			n.Transport, n.Sent, n.Received = c.pair.Transport, c.pair.Sent, c.pair.Received
		}
		list = append(list, n)
	}
	for _, p := range pairs {
		n := a.entry(adapter.QueuePair, interfaces[p.Local], true, p.OwnerPID)
		n.State, n.Transport, n.QPN, n.RemoteQPN, n.Sent, n.Received = p.State, p.Transport, p.Number, p.PeerNumber, p.Sent, p.Received
		if p.Remote.IsValid() {
			n.Local, n.Remote = netip.AddrPortFrom(p.Local, 0).String(), netip.AddrPortFrom(p.Remote, 0).String()
		}
		list = append(list, n)
	}
	for _, e := range s.LocalEndpoints() {
		kind := adapter.SharedEndpoint
		if e.Listener {
			kind = adapter.Listener
		}
		n := a.entry(kind, interfaces[e.Local.Addr()], e.UserModeOwner, e.OwnerPID)
		n.Local = text(e.Local)
		list = append(list, n)
	}
	return list, nil
}

// A connection is one of an adapter's connections.
type connection struct {
	provider.ConnectionEntry
	pair *lease.HeldQueuePair // its queue pair, if that is of verbs
}

// connectionsOf returns an adapter's connections, and the queue pairs of verbs that are of none of these.
func connectionsOf(ctx context.Context, s *lease.Server) (connections []connection, others []lease.HeldQueuePair) {
	others = s.QueuePairs(ctx)
	for _, c := range s.Connections() {
		found := connection{ConnectionEntry: c}
		if of := slices.IndexFunc(others, func(p lease.HeldQueuePair) bool { return c.UserModeOwner && p.Number == c.QPN }); of >= 0 {
			found.pair = new(others[of])
			others = slices.Delete(others, of, of+1)
		}
		connections = append(connections, found)
	}
	return connections, others
}

// entry returns an entry with its type, interface and owner.
func (a *agent) entry(kind string, i net.Interface, userMode bool, pid uint32) adapter.Connection {
	c := adapter.Connection{Type: kind, Mode: "Kernel", Interface: i.Name, IfIndex: i.Index}
	if userMode {
		c.Mode, c.PID, c.Process = "User", a.pidOutside(pid), processOf(pid)
	}
	return c
}

// text returns an address for people; "" if there is none.
func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// processOf returns the name of a node's process; "" of one that has ended or is outside of it.
func processOf(pid uint32) string {
	if pid == 0 {
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(name), "\n")
}

// pidOutside returns the process id of a node's process in the supervisor's PID namespace, 0
// of one that has ended or is outside of the node's.
func (a *agent) pidOutside(pid uint32) int {
	outside, err := a.outsideProc()
	if pid == 0 || err != nil {
		return 0
	}
	found, err := PIDIn(outside, int(pid))
	if err != nil {
		return 0
	}
	return found
}

// interfacesByAddress returns the interface of the node that has each address.
func interfacesByAddress() map[netip.Addr]net.Interface {
	found := map[netip.Addr]net.Interface{}
	// Interfaces that cannot be asked are left out: they may go at any time.
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				found[prefix.Addr()] = i
			}
		}
	}
	return found
}

// interfaceNames returns the name of the interface that has each address of the node.
func interfaceNames() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for address, i := range interfacesByAddress() {
		names[address] = i.Name
	}
	return names
}

func (a *agent) setState(ctx context.Context, _ *control.Request, enable bool) (change StateChange, err error) {
	shared := a.sharedAdapter()
	if shared == nil {
		return change, errNoAdapter
	}
	m := shared.Device()
	change = StateChange{Was: m.Attributes().Enabled, Open: m.Usage().Instances}
	switch status := m.SetState(enable); status {
	case provider.StatusSuccess:
	case provider.StatusNotSupported:
		return change, control.Errorf(control.Usage, "the adapter cannot be enabled: the topology has network_direct: false for it")
	default:
		return change, fmt.Errorf("set state: %w", status)
	}
	err = until(ctx, stateChangeTime, func() bool {
		change.Enabled, change.Left = m.Attributes().Enabled, m.Usage().Instances
		return change.Enabled == enable && (enable || change.Left == 0)
	})
	return change, err
}

// until waits for a condition, for at most limit, and fails only with ctx.
func until(ctx context.Context, limit time.Duration, condition func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(limit)
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			condition() // this process may have slept, and others not
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
