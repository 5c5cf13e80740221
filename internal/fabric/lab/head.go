package lab

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/topology/parts"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A head is the machines of a lab over several hosts: it passes actions on to the parts there, and asks these (part.go). An
// action on a link between two hosts goes to both.
type head struct {
	// ended is told of the end of an agent, and qpError of a queue pair in error.
	ended   func(l *life, reason string)
	qpError func(node string, e provider.QPError)
	publish func(event.Event)
	die     func(*control.Error) // is told why the lab ends
	lose    func(core.HostLost)  // has the core decide on the loss of a host
	since   func() time.Duration // the lab's clock
	hosts   *hosts.Head
	cut     chan cut // has room for the ends of all trunks of a host

	captures captureRequests // to parts

	beginLinks func() error // is called when parts have carried BeginLinks out; set before the first action
	// The following fields are set by begin.
	parts []*farPart
	first map[*topology.Link]bool // the links of the first topology, which parts know by number

	joining sync.Mutex           // held while hosts are joined; guards joined
	joined  map[[2]*farPart]bool // hosts between which there are trunks

	mu      sync.Mutex       // guards what follows
	lives   map[string]*life // the present or the last one of each node
	placing                  // headplacing.go
}

// A farPart is the part of a lab at a host.
type farPart struct {
	*hosts.Host
	engine *linkem.Engine
	busy   atomic.Bool   // its engine has a link, or is about to
	lost   chan struct{} // closed when the core knows that the host is gone; then the fields that follow are set
	reason error         // which names the host
	lostAt time.Duration // by the lab's clock
}

// A cut is the end of the trunk between two hosts.
type cut struct {
	hosts [2]string
	err   error
}

// preparedAtOnce is the number of hosts that are told the topology at the same time. Of 60,000 nodes it takes 31 MB as a message.
const preparedAtOnce = 4

// begin places the nodes of a lab on hosts, has the parts there know the lab, and joins those that have links with each other.
func (h *head) begin(ctx context.Context, lab string, topo *topology.Topology, found []*hosts.Host) error {
	on := make([]parts.Host, len(found))
	for i, host := range found {
		on[i] = parts.Host{Name: host.Name, CPUs: host.CPUs, Memory: host.Memory}
	}
	placed, err := parts.Plan(topo, on, parts.UsualApart)
	if err != nil {
		return err
	}
	h.publish(event.Event{Kind: event.LabPlaced, Text: placed.Summary(h.apart(found)).Crossing()})
	for _, host := range found {
		h.parts = append(h.parts, &farPart{Host: host, engine: linkem.NewEngine(control.Behind(host.Conn, engineName)), lost: make(chan struct{})})
	}
	h.first, h.joined = make(map[*topology.Link]bool, len(topo.Links)), map[[2]*farPart]bool{}
	for i := range topo.Links {
		h.first[&topo.Links[i]] = true
	}
	h.mu.Lock()
	h.place(topo, placed)
	params := partParams{Lab: lab, Topology: topo, Hosts: h.hostsOf(topo)}
	h.mu.Unlock()
	err = h.eachOf(ctx, preparedAtOnce, h.parts, func(ctx context.Context, p *farPart) error {
		params := params
		params.Host = p.Name
		return methodPrepare.Call(ctx, p.Conn, params)
	})
	if err != nil {
		return err
	}
	for i, buffered := range topo.BufferedLinks() {
		for _, p := range h.ofLink(&topo.Links[i]) {
			if buffered {
				p.busy.Store(true)
			}
		}
	}
	return h.join(ctx, placed)
}

// join joins the hosts that have links with each other by a placement.
func (h *head) join(ctx context.Context, placed *parts.Placement) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	for _, c := range placed.Cut() {
		pair := [2]*farPart{h.parts[min(c.Hosts[0], c.Hosts[1])], h.parts[max(c.Hosts[0], c.Hosts[1])]}
		if h.joined[pair] {
			continue
		}
		h.joined[pair] = true
		for _, p := range pair {
			p.busy.Store(true)
		}
		if err := h.hosts.Join(ctx, pair[0].Host, pair[1].Host); err != nil {
			delete(h.joined, pair)
			return err
		}
	}
	return nil
}

// apart returns the time that a packet takes between hosts, as far as it is known: the longest to one and half of the trip back.
func (h *head) apart(found []*hosts.Host) (longest time.Duration) {
	for _, host := range found {
		longest = max(longest, host.Trip/2)
	}
	return longest
}

// report returns the hosts for the report of a run.
func (h *head) report() (all []report.RunHost) {
	h.mu.Lock()
	placed := h.placed
	h.mu.Unlock()
	for i, share := range placed.Summary(parts.UsualApart).Hosts {
		host := h.parts[i].Host
		clock := host.Clock()
		is := report.RunHost{
			Name: host.Name, Nodes: share.Nodes, Cut: share.Cut, CPUs: host.CPUs, TripUS: inMicros(host.Trip),
			OffsetUS: new(inMicros(clock.Ahead)), OffsetErrorUS: new(inMicros(clock.Wrong)),
		}
		if p := h.parts[i]; p.isLost() {
			at := p.lostAt.Seconds()
			is.LostSeconds, is.Lost = &at, p.reason.Error()
		}
		all = append(all, is)
	}
	return all
}

func inMicros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// between returns the names of the hosts of a link's ends, nil unless they differ.
func (h *head) between(spec *topology.Link) *[2]string {
	both := h.ofLink(spec)
	if len(both) < 2 {
		return nil
	}
	return &[2]string{h.ofEnd(spec, 0).Name, h.ofEnd(spec, 1).Name}
}

// each is eachOf with all parts at once.
func (h *head) each(ctx context.Context, parts []*farPart, ask func(context.Context, *farPart) error) error {
	return h.eachOf(ctx, len(parts), parts, ask)
}

// eachOf asks parts, width of them at the same time. An error has the name of its host. Those that are lost are left out,
// before and amid.
func (h *head) eachOf(ctx context.Context, width int, parts []*farPart, ask func(context.Context, *farPart) error) error {
	return parallel(ctx, width, len(parts), func(ctx context.Context, i int) error {
		p := parts[i]
		if p.isLost() {
			return nil
		}
		switch err := ask(ctx, p); {
		case err == nil, h.wentWith(ctx, p, err):
			return nil
		default:
			return fmt.Errorf("host %s: %w", p.Name, err)
		}
	})
}

func (p *farPart) isLost() bool { return isClosed(p.lost) }

// wentWith reports whether an error is that the part was lost, which the core knows by then, and says as the reason of the lab's end
// unless the lab goes on.
func (h *head) wentWith(ctx context.Context, p *farPart, err error) bool {
	if !errors.Is(err, control.ErrClosed) {
		return p.isLost()
	}
	select {
	case <-p.lost:
		return true
	case <-ctx.Done():
	case <-time.After(goneTime): // one process behind the part has ended, not the part
	}
	return false
}

// failedWith reports whether an engine has failed to answer since its host was lost.
func (h *head) failedWith(ctx context.Context, engine *linkem.Engine, err error) bool {
	for _, p := range h.parts {
		if p.engine == engine {
			return err != nil && h.wentWith(ctx, p, err)
		}
	}
	return false
}

// ofLink returns the parts that have ends of a link, in the order of the hosts.
func (h *head) ofLink(spec *topology.Link) []*farPart {
	one, other := h.ofEnd(spec, 0), h.ofEnd(spec, 1)
	switch {
	case one == other:
		return []*farPart{one}
	case one.Index > other.Index:
		one, other = other, one
	}
	return []*farPart{one, other}
}

// ofEnd returns the part that has an end of a link. One outside of the lab is where its node is.
func (h *head) ofEnd(spec *topology.Link, end int) *farPart {
	if e := spec.Endpoints[end]; !e.External() {
		return h.ofNode(e.Node)
	}
	return h.ofNode(spec.Endpoints[1-end].Node)
}

// ofNode returns the part that has a node, or had one of that name last.
func (h *head) ofNode(name string) *farPart {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[name]
}

// partsOf returns the parts that carry out an action: those that have its node, its switch or its link, or all.
func (h *head) partsOf(a core.Action) []*farPart {
	if of, ok := a.(interface{ NodeName() string }); ok {
		return []*farPart{h.ofNode(of.NodeName())}
	}
	fields := reflect.ValueOf(a)
	for _, name := range []string{"Spec", "Link"} {
		switch is := fields.FieldByName(name); {
		case !is.IsValid():
		case name == "Spec":
			return []*farPart{h.ofNode(is.Interface().(*topology.Node).Name)}
		default:
			return h.ofLink(is.Interface().(*topology.Link))
		}
	}
	return h.parts
}

// action returns how to have parts carry out an action.
func (h *head) action(topo *topology.Topology, a core.Action) func() core.Done {
	known := h.follow(topo, a) // before the parts are looked for
	parts := h.partsOf(a)
	return func() core.Done {
		<-known
		o, err := orderOf(a, h.first)
		if err != nil {
			return core.Done{Err: err}
		}
		if of, ok := a.(core.MakeSwitch); ok {
			o.Bridge = h.bridgeOf(topo, of.Spec.Name)
		}
		if start, ok := a.(core.StartAgent); ok {
			return h.start(start, o)
		}
		var mu sync.Mutex // guards what follows
		var all core.Done
		err = h.each(context.Background(), parts, func(ctx context.Context, p *farPart) error {
			if _, ok := a.(core.Impair); ok {
				p.busy.Store(true)
			}
			is, err := methodOrder.Call(ctx, p.Conn, o)
			mu.Lock()
			defer mu.Unlock()
			all.Agent, all.Late = all.Agent || is.Done.Agent, all.Late || is.Done.Late
			all.Status, all.Output, all.Failure = is.Done.Status, is.Done.Output, is.Done.Failure
			if err == nil && is.Err != nil {
				err = is.Err
			}
			return err
		})
		if _, ok := a.(core.BeginLinks); ok && err == nil {
			err = h.beginLinks()
		}
		if p := parts[0]; err == nil && len(parts) == 1 && p.isLost() && !ofLinks(a) {
			err = p.reason // which nobody else makes up for
		}
		all.Err = err
		return all
	}
}

// ofLinks reports whether an action is one of a link, which is as it is to be where there is no interface.
func ofLinks(a core.Action) bool { return reflect.ValueOf(a).FieldByName("Link").IsValid() }

// start has a part start an agent. Its life is known before: the agent may end at once.
func (h *head) start(a core.StartAgent, o order) core.Done {
	p := h.ofNode(a.Node)
	l := &life{Of: a.Of, spec: a.Topology.FindNode(a.Node), unwatch: func() {}, down: make(chan struct{})}
	l.client = node.NewClient(a.Node, control.Behind(p.Conn, agentAt(a.Of)))
	l.usageOf = func() (u usage) {
		u, _ = methodUsage.Call(context.Background(), p.Conn, a.Node) // a node that is gone uses nothing
		return u
	}
	h.mu.Lock()
	before := h.lives[a.Node]
	h.lives[a.Node] = l
	h.mu.Unlock()
	is, err := methodOrder.Call(context.Background(), p.Conn, o)
	if err == nil && is.Err != nil {
		err = is.Err
	}
	if err != nil {
		h.mu.Lock()
		h.lives[a.Node] = before
		h.mu.Unlock()
		h.wentWith(context.Background(), p, err)
		return core.Done{Err: fmt.Errorf("host %s: %w", p.Name, err)}
	}
	return is.Done
}

func (h *head) life(name string) *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lives[name]
}

func (h *head) pid(node string, pid int) (int, error) {
	return methodPID.Call(context.Background(), h.ofNode(node).Conn, pidParams{node, pid})
}

func (h *head) ports() (map[[2]int]link.PortStatus, error) {
	all := map[[2]int]link.PortStatus{}
	var mu sync.Mutex // guards all
	return all, h.each(context.Background(), h.parts, func(ctx context.Context, p *farPart) error {
		found, err := methodPorts.Call(ctx, p.Conn, nil)
		mu.Lock()
		defer mu.Unlock()
		for _, port := range found {
			all[[2]int{port.Link, port.End}] = port.Status
		}
		return err
	})
}

// carried asks the parts. The kernel of none carries a link between hosts.
func (h *head) carried(*topology.Topology) (map[int]carried, error) {
	all := map[int]carried{}
	var mu sync.Mutex // guards all
	return all, h.each(context.Background(), h.parts, func(ctx context.Context, p *farPart) error {
		found, err := methodCarried.Call(ctx, p.Conn, nil)
		mu.Lock()
		defer mu.Unlock()
		for number, of := range found {
			if of != (carried{}) {
				all[number] = of
			}
		}
		return err
	})
}

// engines returns those that parts may have started.
func (h *head) engines() (all []*linkem.Engine) {
	for _, p := range h.parts {
		if p.busy.Load() && !p.isLost() {
			all = append(all, p.engine)
		}
	}
	return all
}

// startEngines returns the engines of all parts, which these start when they are asked.
func (h *head) startEngines() ([]*linkem.Engine, error) {
	for _, p := range h.parts {
		p.busy.Store(true)
	}
	return h.engines(), nil
}

// trunkEnds is more than the ends of trunks that a part can tell of before watch takes them.
const trunkEnds = 1024

// requests answers the part at a host.
func (h *head) requests(host *hosts.Host) control.Handler {
	mux := new(control.Mux)
	methodEnded.Handle(mux, func(_ context.Context, _ *control.Request, of ended) error {
		if l := h.life(of.Node); l != nil && l.Of == of.Of {
			h.ended(l, of.Reason)
		}
		return nil
	})
	methodOver.Handle(mux, func(_ context.Context, _ *control.Request, reason string) error {
		h.die(control.Errorf(control.Failed, "host %s: %s", host.Name, reason))
		return nil
	})
	noticeBegan.Handle(mux, func(_ context.Context, _ *control.Request, of began) error {
		if l := h.life(of.Node); l != nil && l.Of == of.Of {
			l.hostPID.Store(int64(of.PID))
		}
		return nil
	})
	noticeTrunk.Handle(mux, func(_ context.Context, _ *control.Request, of trunkEnd) error {
		select {
		case h.cut <- cut{[2]string{host.Name, of.Host}, control.Errorf(control.Failed, "host %s: its links to %s have ended: %s", host.Name, of.Host, of.Reason)}:
		default: // many were before, of which one ends the lab
		}
		return nil
	})
	noticePublish.Handle(mux, func(_ context.Context, _ *control.Request, e event.Event) error {
		if e.Kind == event.Warning {
			e.Text = "host " + host.Name + ": " + e.Text
		}
		h.publish(e)
		return nil
	})
	noticeQPError.Handle(mux, func(_ context.Context, _ *control.Request, e nodeQPError) error {
		h.qpError(e.Node, e.Error)
		return nil
	})
	methodSocket.Handle(mux, h.captures.takeSocket)
	mux.Forward(func(to string) (control.Handler, error) {
		name, _, _ := strings.Cut(to, " ")
		if l := h.life(name); l != nil && agentAt(l.Of) == to {
			return l.client.Notices().Serve, nil
		}
		return nil, control.Errorf(control.Usage, "there is no node %s", to)
	})
	return mux.Serve
}

// goneTime is the time in which a head knows of a host that is gone, which ends the trunks to it and its processes at once.
const goneTime = 5 * time.Second

// watch tells the core of hosts that are gone, and ends the lab when two that are there do not reach each other.
func (h *head) watch() {
	var cuts []cut // whose cause may be the loss of a host
	var late <-chan time.Time
	for {
		select {
		case l := <-h.hosts.Lost():
			if l.Host == nil {
				h.die(control.AsError(l.Err))
				return
			}
			h.loseHost(l)
			cuts = slices.DeleteFunc(cuts, h.explained)
		case c := <-h.cut:
			if !h.explained(c) {
				cuts = append(cuts, c)
				late = time.After(goneTime)
			}
		case <-late:
			if len(cuts) > 0 {
				h.die(control.AsError(cuts[0].err))
				return
			}
		}
	}
}

// explained reports whether one of the hosts of a cut is lost.
func (h *head) explained(c cut) bool {
	return slices.ContainsFunc(h.parts, func(p *farPart) bool { return p.isLost() && slices.Contains(c.hosts[:], p.Name) })
}

// loseHost has the core decide on the loss of a host.
func (h *head) loseHost(l hosts.Loss) {
	e := core.HostLost{Host: l.Host.Name, Reason: l.Err}
	h.mu.Lock()
	for i := range h.present.Nodes {
		if name := h.present.Nodes[i].Name; h.at[name].Host == l.Host {
			e.Nodes = append(e.Nodes, name)
		}
	}
	h.mu.Unlock()
	for _, p := range h.parts {
		if p.Host == l.Host {
			p.reason, p.lostAt = l.Err, h.since()
			defer close(p.lost) // actions of the loss are for those that are left
		}
	}
	h.lose(e)
}

// errAcrossHosts is the error of a request for what a lab over several hosts does not do.
func errAcrossHosts(what string) error {
	return control.Errorf(control.Unable, "%s: a lab over several hosts cannot do that yet; remedy: run it without --hosts", what)
}

// isAlone reports an error if the lab has several hosts.
func (d *driver) isAlone(what string) error {
	if d.machines == machines(d.here) {
		return nil
	}
	return errAcrossHosts(what)
}

// acrossHosts returns which hosts a lab is to be over, as its guardian reads it.
func acrossHosts(given string) (string, error) {
	spec, err := hosts.Parse(given)
	if err != nil {
		return "", fmt.Errorf("hosts %q: %w", given, err)
	}
	return spec.String(), nil
}
