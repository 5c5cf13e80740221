package scenario

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A fakeStage is a stage in virtual time whose clients complete a message per
// millisecond. Nodes that are down or paused do not answer: the stage calls back with
// an error after a second, as a lab does.
type fakeStage struct {
	*clock.Virtual
	deaf      bool // clients do not stop
	dilation  int  // of Clock; the stage itself lives by the machine's
	t         failer
	topo      *topology.Topology
	log       []string // what was asked of it, with its instant
	watcher   func(event.Event)
	served    map[string]bool // workload/flow@node
	clients   map[string]*fakeClient
	state     map[string]string // of nodes; ready unless it is here
	away      []string
	life      map[string]int
	counter   map[string]func() uint64 // of every node, by name
	transport map[string]uint64        // likewise, of its transport
	exit      func(node string, c Command) (Exit, time.Duration)
	// ready returns the time that a server takes to be ready; less than 0: for ever.
	ready  func(topology.Readiness) time.Duration
	inUse  provider.Usage
	gone   time.Duration // when nothing is in use any more; 0: never
	found  *workload.ServerResult
	links  []report.Link
	refuse map[string]error // what Change is to answer, by action in words
	slow   map[string]time.Duration
	// published is called for what is.
	published func(event.Event)
	changing  map[string]string // what goes on, by node; "" is links
	overlaps  string            // of what did so at once
}

type fakeClient struct {
	node  string
	spec  workload.Spec
	began time.Duration
	end   clock.Timer
	done  func(workload.Result, error)
	stuck bool
}

// A failer is a test, or a property that is checked.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newStage(t failer, topo *topology.Topology) *fakeStage {
	return &fakeStage{
		Virtual: clock.NewVirtual(), t: t, topo: topo, served: map[string]bool{}, clients: map[string]*fakeClient{},
		state: map[string]string{}, life: map[string]int{}, counter: map[string]func() uint64{}, refuse: map[string]error{}, slow: map[string]time.Duration{}, changing: map[string]string{},
	}
}

func (s *fakeStage) Clock() clock.Clock { return clock.Dilated(s.Virtual, s.dilation) }

func (s *fakeStage) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%v ", s.Now())+fmt.Sprintf(format, args...))
}

// answer calls back soon, or when the stage gives a node up that does not answer.
func (s *fakeStage) answer(node string, f func(err error)) {
	s.AfterFunc(time.Microsecond, func() {
		switch s.state[node] {
		case "":
			f(nil)
		case "paused":
			s.AfterFunc(time.Second, func() { f(fmt.Errorf("node %s is paused", node)) })
		default:
			f(fmt.Errorf("node %s is %s", node, s.state[node]))
		}
	})
}

func end(node, name string, flow int) string { return fmt.Sprintf("%s/%d@%s", name, flow, node) }

func (s *fakeStage) Serve(node string, spec workload.Spec, at netip.AddrPort, done func(error)) {
	s.answer(node, func(err error) {
		key := end(node, spec.Name, spec.Flow)
		if err == nil && s.served[key] {
			err = workload.ErrServed
		}
		if err == nil {
			s.served[key] = true
		}
		done(err)
	})
}

func (s *fakeStage) Unserve(node, name string, flow int, done func(workload.ServerResult, error)) {
	s.answer(node, func(err error) {
		key := end(node, name, flow)
		if err == nil && !s.served[key] {
			err = workload.ErrNotServed
		}
		delete(s.served, key)
		found := workload.ServerResult{Verified: 1 << 40}
		if s.found != nil {
			found = *s.found
		}
		done(found, err)
	})
}

func (s *fakeStage) Run(node string, spec workload.Spec, from netip.Addr, to netip.AddrPort, done func(workload.Result, error)) {
	s.answer(node, func(err error) {
		if err != nil {
			done(workload.Result{}, err)
			return
		}
		s.note("run %s/%d from %s", spec.Name, spec.Flow, node)
		key := end(node, spec.Name, spec.Flow)
		if s.clients[key] != nil {
			s.t.Errorf("client %s runs already", key)
		}
		c := &fakeClient{node: node, spec: spec, began: s.Now(), done: done}
		s.clients[key] = c
		lasts := spec.Duration
		if spec.Count > 0 {
			lasts = time.Duration(spec.Count) * time.Millisecond
		}
		c.end = s.AfterFunc(lasts, func() {
			text := ""
			if to := end(s.at(to.Addr()), spec.Name, spec.Flow); !s.served[to] {
				text = to + " refuses the connection"
			}
			s.over(key, text, nil)
		})
	})
}

// at is the node that has an address.
func (s *fakeStage) at(a netip.Addr) string {
	for _, n := range s.topo.Nodes {
		for _, i := range n.Interfaces {
			if i.Addresses[0].Addr() == a {
				return n.Name
			}
		}
	}
	return "nobody"
}

// over ends a client.
func (s *fakeStage) over(key, text string, err error) {
	c := s.clients[key]
	if c == nil {
		return
	}
	delete(s.clients, key)
	c.end.Stop()
	n := s.completed(c)
	r := workload.Result{Messages: n, Completed: n, Bytes: n * c.spec.Size, Seconds: (s.Now() - c.began).Seconds(), Error: text, Connections: 1}
	if text != "" {
		r.Errors = 1
	}
	for at := time.Duration(0); at < s.Now()-c.began; at += 100 * time.Millisecond {
		piece := min(100*time.Millisecond, s.Now()-c.began-at)
		r.Series = append(r.Series, workload.Sample{At: at.Seconds(), Seconds: piece.Seconds(), Messages: uint64(piece / time.Millisecond)})
	}
	s.AfterFunc(time.Microsecond, func() { c.done(r, err) })
}

func (s *fakeStage) completed(c *fakeClient) uint64 {
	if c.stuck {
		return 0
	}
	return uint64((s.Now() - c.began) / time.Millisecond)
}

func (s *fakeStage) Stop(node, name string, flow int) {
	s.note("stop %s/%d", name, flow)
	if s.deaf {
		return
	}
	s.AfterFunc(time.Microsecond, func() { s.over(end(node, name, flow), "", nil) })
}

func (s *fakeStage) Abort(node, name string, flow int, reason string) {
	s.note("abort %s/%d", name, flow)
	s.AfterFunc(time.Microsecond, func() { s.over(end(node, name, flow), reason, nil) })
}

func (s *fakeStage) Progress(node string, done func([]workload.Progress, error)) {
	s.answer(node, func(err error) {
		var all []workload.Progress
		for _, c := range s.clients {
			if err == nil && c.node == node {
				all = append(all, workload.Progress{Name: c.spec.Name, Flow: c.spec.Flow, Messages: s.completed(c), Bytes: s.completed(c) * c.spec.Size})
			}
		}
		done(all, err)
	})
}

// changeOf returns what an event changes, in words.
func changeOf(e *topology.Event) string {
	switch {
	case e.NodeAction != "":
		return string(e.NodeAction) + " " + e.Node
	case e.Down:
		return fmt.Sprint("down ", e.Link)
	case e.Up:
		return fmt.Sprint("up ", e.Link)
	case e.Reset:
		return fmt.Sprint("reset ", e.Link)
	case e.Heal:
		return "heal"
	case len(e.Partition) > 0:
		return fmt.Sprint("partition ", e.Partition)
	}
	return fmt.Sprint("set ", e.Link, " ", e.Set)
}

func (s *fakeStage) Change(e *topology.Event, done func(error)) {
	what := changeOf(e)
	s.note("%s", what)
	if now := s.changing[e.Node]; now != "" {
		s.overlaps = now + " and " + what
	}
	s.changing[e.Node] = what
	s.AfterFunc(max(time.Microsecond, s.slow[what]), func() {
		err := s.refuse[what]
		if err == nil && e.NodeAction == topology.RestartNode { // which nothing does at once
			s.die(e.Node)
			up := *e
			up.NodeAction = topology.StartNode
			s.AfterFunc(time.Millisecond, func() {
				delete(s.changing, e.Node)
				s.act(&up)
				done(nil)
			})
			return
		}
		delete(s.changing, e.Node)
		if err == nil {
			s.act(e)
		}
		done(err)
	})
}

func (s *fakeStage) act(e *topology.Event) {
	tell := func(kind, text string) {
		s.tell(event.Event{Kind: kind, Node: e.Node, Text: fmt.Sprintf("node %s %s", e.Node, text)})
	}
	switch e.NodeAction {
	case topology.KillNode, topology.StopNode:
		s.die(e.Node)
	case topology.StartNode:
		delete(s.state, e.Node)
		tell(event.NodeUp, "is up again")
	case topology.PauseNode:
		s.state[e.Node] = "paused"
		for _, c := range s.clients {
			if c.node == e.Node {
				c.end.Stop()
				c.stuck = true
			}
		}
		tell(event.NodePaused, "is paused")
	case topology.ResumeNode:
		delete(s.state, e.Node)
		tell(event.NodeResumed, "goes on")
	default:
		s.tell(event.Event{Kind: event.LinkChanged, Link: s.topo.Links[e.Link].Endpoints[0].String(), Text: changeOf(e)})
	}
}

// die ends a node, with what runs and serves there.
func (s *fakeStage) die(node string) {
	s.state[node] = "down"
	for _, key := range slices.Sorted(maps.Keys(s.clients)) {
		if s.clients[key].node == node {
			s.over(key, "", fmt.Errorf("node %s went down", node))
		}
	}
	for key := range s.served {
		if strings.HasSuffix(key, "@"+node) {
			delete(s.served, key)
		}
	}
	s.tell(event.Event{Kind: event.NodeDown, Node: node, Text: fmt.Sprintf("node %s is down", node)})
}

func (s *fakeStage) tell(e event.Event) {
	e.At = s.Now()
	s.Go(func() {
		if s.watcher != nil {
			s.watcher(e)
		}
	})
}

func (s *fakeStage) Exec(node string, c Command, done func(Exit, error)) (cancel func()) {
	s.note("exec %s in %s", strings.Join(c.Args, " "), node)
	if s.state[node] != "" {
		s.Go(func() { done(Exit{}, errors.New("node "+node+" is "+s.state[node])) })
		return func() {}
	}
	exit, lasts := s.exit(node, c)
	if c.Timeout > 0 && lasts > c.Timeout {
		exit, lasts = Exit{Status: 143, TimedOut: true}, c.Timeout
	}
	over := false
	if c.Ready != nil && s.ready != nil {
		if after := s.ready(c.Readiness); after >= 0 {
			s.AfterFunc(after, func() {
				if !over {
					c.Ready()
				}
			})
		}
	}
	finish := func(e Exit) {
		if !over {
			over = true
			done(e, nil)
		}
	}
	s.AfterFunc(lasts, func() { finish(exit) })
	return func() { s.Go(func() { finish(Exit{Status: 143}) }) }
}

func (s *fakeStage) Nodes(names []string, done func([]report.Node)) {
	wanted := names
	if names == nil {
		for _, n := range s.topo.Nodes {
			wanted = append(wanted, n.Name)
		}
	}
	s.AfterFunc(time.Microsecond, func() {
		var all []report.Node
		for _, name := range wanted {
			n := report.Node{NodeState: report.NodeState{Name: name, State: core.NodeIsReady}, PID: 1000, Kind: "host", Counters: map[string]uint64{}, Transport: map[string]uint64{}}
			if s.state[name] != "" {
				n.State = s.state[name]
			} else {
				n.Counters["ActiveConnection"] = 0
				for c, value := range s.counter {
					n.Counters[c] = value()
				}
				maps.Copy(n.Transport, s.transport)
			}
			all = append(all, n)
		}
		done(all)
	})
}

func (s *fakeStage) Away() []string { return s.away }

func (s *fakeStage) Links(done func([]report.Link, error)) {
	s.AfterFunc(time.Microsecond, func() { done(s.links, nil) })
}

func (s *fakeStage) Buffers(done func([]report.Buffer, []report.Deadlock, *report.Series)) {
	s.AfterFunc(time.Microsecond, func() { done(nil, nil, nil) })
}

func (s *fakeStage) Adapters(names []string, done func([]report.NodeAdapter)) {
	s.AfterFunc(time.Microsecond, func() {
		var all []report.NodeAdapter
		if s.gone > 0 && s.Now() >= s.gone {
			s.inUse = provider.Usage{}
		}
		for _, n := range s.topo.Nodes {
			all = append(all, report.NodeAdapter{NodeState: report.NodeState{Name: n.Name, State: "ready"}, Adapter: &adapter.State{InUse: s.inUse}})
		}
		done(all)
	})
}

func (s *fakeStage) Watch(event func(event.Event)) (stop func()) {
	s.watcher = event
	return func() { s.watcher = nil }
}

func (s *fakeStage) Publish(e event.Event) {
	if e.Kind != event.WorkloadProgress {
		s.note("%s", e.Text)
	}
	if s.published != nil {
		s.published(e)
	}
}

// within bounds how long a play may take in virtual time.
const within = time.Hour

// play plays a topology to its end.
func (s *fakeStage) play() *report.Run {
	s.t.Helper()
	r, err := s.begin(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// begin plays to the end; meanwhile is called with the play once it has begun.
func (s *fakeStage) begin(meanwhile func(*Play)) (*report.Run, error) {
	s.t.Helper()
	var result *report.Run
	var failed error
	called := 0
	p := Begin(s, s.topo, func(r *report.Run, err error) { result, failed, called = r, err, called+1 })
	if meanwhile != nil {
		meanwhile(p)
	}
	if !s.RunUntil(func() bool { return called > 0 }, within) {
		s.t.Fatalf("the play has not ended after %v; so far:\n%s", within, strings.Join(s.log, "\n"))
	}
	s.Virtual.Run(time.Minute)
	if called != 1 {
		s.t.Fatalf("it has ended %d times", called)
	}
	if len(s.clients) > 0 || len(s.served) > 0 {
		s.t.Errorf("left: clients %v, servers %v", s.clients, s.served)
	}
	return result, failed
}

// hosts is a topology of as many hosts in a row, n0 and so on, each linked to the next.
func hosts(n int) *topology.Topology {
	t := &topology.Topology{Name: "lab", Seed: 42}
	for i := range n {
		t.Nodes = append(t.Nodes, topology.Node{Name: fmt.Sprintf("n%d", i), Kind: topology.Host})
	}
	face := func(i int) *topology.Node { return &t.Nodes[i] }
	for i := range n {
		for j := i + 1; j < n; j++ {
			k := len(t.Links)
			var ends [2]topology.Endpoint
			for end, node := range []int{i, j} {
				name := fmt.Sprintf("eth%d", len(face(node).Interfaces))
				ends[end] = topology.Endpoint{Node: face(node).Name, Interface: name}
				prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(k), byte(end + 1)}), 24)
				face(node).Interfaces = append(face(node).Interfaces, topology.Interface{Name: name, Link: k, End: end, Addresses: []netip.Prefix{prefix}})
			}
			t.Links = append(t.Links, topology.Link{Endpoints: ends})
		}
	}
	return t
}

// pair is a workload of writes from n0 to n1.
func pair(name string, d time.Duration) topology.Workload {
	return topology.Workload{
		Name: name, Operation: topology.Write, Pattern: topology.Pair, From: "n0", To: "n1", Size: 1000, Depth: 1, QPs: 1, Duration: d,
		Flows: []topology.Flow{{From: "n0", To: "n1"}},
	}
}
