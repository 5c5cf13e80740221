package core

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A world carries out the actions of a lab in virtual time, and judges them: it reports an interface that is made in a node
// without an agent, a link that is connected with one end, and two actions at once of one node.
type world struct {
	t      testing.TB
	lab    *Lab
	rand   *rand.Rand // how long actions take; nil: each takes 1 ms
	now    time.Duration
	events worldEvents
	last   int

	given    map[string]*topology.Topology // what a node's agent was told
	routes   map[string][]topology.Route   // likewise
	agents   map[string]int                // the life of the agent that a node has; 0: none
	killed   map[string]bool               // by a signal or KillAgent, and about to end
	switches map[string]bool
	links    map[int]*worldLink // by Number
	busy     map[string]bool    // nodes and links that an action is under way for

	slow    func(a Action) time.Duration // how much longer an action takes; nil: none does
	fail    func(a Action) *Done         // what comes of an action; nil: that it succeeds
	healthy func(node string) string
	answers map[uint64]*Answer
	asked   uint64
	told    []string
	// forgotten are nodes and links that the lab has had the world forget.
	forgotten []string
	done      []string // actions, in the order in which they were carried out
	ended     error
	parallel  int // actions under way, and the most that were
	most      int
}

const debug = false

type worldLink struct {
	made              [2]bool
	engine, connected bool
	impairs           [2]topology.Impairment
}

type worldEvent struct {
	at     time.Duration
	number int
	do     func()
}

type worldEvents []worldEvent

func (e worldEvents) Len() int { return len(e) }
func (e worldEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e worldEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *worldEvents) Push(x any)   { *e = append(*e, x.(worldEvent)) }
func (e *worldEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func parse(t testing.TB, text string) *topology.Topology {
	t.Helper()
	topo, err := topology.Parse("test.ndklab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func newWorld(t testing.TB, text string) *world {
	t.Helper()
	return &world{
		t: t, lab: New(parse(t, text)), given: map[string]*topology.Topology{}, routes: map[string][]topology.Route{}, agents: map[string]int{}, killed: map[string]bool{}, switches: map[string]bool{},
		links: map[int]*worldLink{}, busy: map[string]bool{}, answers: map[uint64]*Answer{},
		healthy: func(string) string { return "" },
	}
}

// built is a world whose lab is up.
func built(t testing.TB, text string) *world {
	t.Helper()
	w := newWorld(t, text)
	w.must(Build{})
	return w
}

// after has something done some time from now.
func (w *world) after(d time.Duration, do func()) {
	w.last++
	heap.Push(&w.events, worldEvent{w.now + d, w.last, do})
}

// handle gives the lab an event, and carries out what comes of it.
func (w *world) handle(e Event) {
	w.lab.Handle(w.now, e)
	for {
		number, a, ok := w.lab.Next()
		if !ok {
			return
		}
		w.begin(number, a)
	}
}

// ask gives the lab a command, and returns its ID.
func (w *world) ask(by Source, c Command) uint64 {
	if debug {
		w.t.Logf("%v ASK %+v", w.now, c)
	}
	w.asked++
	id := w.asked
	w.handle(Ask{id, by, c})
	return id
}

// answer runs the world until a command is answered.
func (w *world) answer(id uint64) *Answer {
	w.t.Helper()
	for limit := w.now + 24*time.Hour; w.answers[id] == nil; {
		if !w.step() || w.now > limit {
			w.t.Fatalf("command %d is not answered. Told:\n%s", id, strings.Join(w.told, "\n"))
		}
	}
	return w.answers[id]
}

// must has a command done by hand.
func (w *world) must(c Command) *Answer {
	w.t.Helper()
	a := w.answer(w.ask(ByHand, c))
	if a.Err != nil {
		w.t.Fatalf("%+v: %v", c, a.Err)
	}
	return a
}

// refused has a command refused with an error.
func (w *world) refused(c Command, want string) {
	w.t.Helper()
	if a := w.answer(w.ask(ByHand, c)); a.Err == nil || a.Err.Error() != want {
		w.t.Errorf("%+v: error %v, want %q", c, a.Err, want)
	}
}

// step has the next thing happen; false if nothing is left that could.
func (w *world) step() bool {
	deadline, ok := w.lab.Deadline()
	switch {
	case len(w.events) > 0 && (!ok || w.events[0].at <= deadline):
		e := heap.Pop(&w.events).(worldEvent)
		w.now = e.at
		e.do()
		return true
	case ok:
		w.now = max(w.now, deadline)
		w.handle(Tick{})
		return true
	}
	return false
}

// rest runs the world until no action is under way.
func (w *world) rest() {
	for len(w.events) > 0 {
		w.step()
	}
}

// run runs the world for some time.
func (w *world) run(d time.Duration) {
	reached := false
	w.after(d, func() { reached = true })
	for !reached {
		w.step()
	}
}

func (w *world) wrong(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("at %v: %s", w.now, fmt.Sprintf(format, args...))
}

// begin begins to carry out an action.
func (w *world) begin(number int, a Action) {
	switch a := a.(type) {
	case Notify:
		w.told = append(w.told, a.Text)
		if debug {
			w.t.Log(w.now, a.Text)
		}
		return
	case Answer:
		if w.answers[a.ID] != nil {
			w.wrong("command %d is answered twice", a.ID)
		}
		w.answers[a.ID] = &a
		return
	case End:
		w.ended = a.Reason
		return
	case ForgetNode:
		if w.agents[a.Node] != 0 || w.busy[a.Node] { // another node of the name may be about to come
			w.wrong("node %s is to be forgotten, and is there", a.Node)
		}
		w.forgotten = append(w.forgotten, a.Node)
		return
	case ForgetLink:
		if k := w.link(a.Link); k.made != [2]bool{} || k.engine || k.connected {
			w.wrong("%s is to be forgotten, and is %+v", linkTo(a.Link), *k)
		}
		w.forgotten = append(w.forgotten, linkTo(a.Link))
		return
	case StartAgent:
		w.given[a.Node], w.routes[a.Node] = a.Topology, a.Routes
	case SetRoutes:
		w.routes[a.Node] = a.Routes
	case Reconfigure:
		w.given[a.Node], w.routes[a.Node] = a.Topology, a.Routes
		w.configure(a.Node)
	case Configure:
		w.configure(a.Node)
	}
	thing := subject(a)
	if thing != "" && w.busy[thing] {
		w.wrong("%T %+v: something else is under way for %s", a, a, thing)
	}
	w.busy[thing] = true
	w.parallel++
	w.most = max(w.most, w.parallel)
	takes := w.takes()
	if w.slow != nil {
		takes += w.slow(a)
	}
	w.after(takes, func() {
		delete(w.busy, thing)
		w.parallel--
		if w.ended != nil {
			return
		}
		d := w.result(a)
		d.Number = number
		if debug && name(a) != "CheckHealth" {
			w.t.Logf("%v %s %s %v", w.now, name(a), subject(a), d.Err)
		}
		w.done = append(w.done, strings.TrimSpace(name(a)+" "+thing))
		w.handle(d)
	})
}

// configure judges that a node has the interfaces that its agent was told of.
func (w *world) configure(node string) {
	topo := w.given[node]
	for _, i := range topo.FindNode(node).Interfaces {
		if !w.link(&topo.Links[i.Link]).made[i.End] {
			w.wrong("node %s is configured without its interface %s", node, i.Name)
		}
	}
}

// name returns the kind of an action.
func name(a Action) string { return fmt.Sprintf("%T", a)[len("core."):] }

// subject returns the node or link of which an action must be the only one under way; "" if there may be others.
func subject(a Action) string {
	switch a := a.(type) {
	case MakeSwitch:
		return a.Spec.Name
	case RemoveSwitch:
		return a.Spec.Name
	case StartAgent:
		return a.Node
	case PlaceFiles:
		return a.Node
	case Execute:
		return a.Node
	case Configure:
		return a.Node
	case Reconfigure:
		return a.Node
	case SetRoutes:
		return a.Node
	case PauseAgent:
		return a.Node
	case ResumeAgent:
		return a.Node
	case SignalAgent:
		return a.Node
	case KillAgent:
		return a.Node
	case MakeEnds:
		return linkTo(a.Link)
	case RemoveEnd:
		return linkTo(a.Link)
	case ResizeLink:
		return linkTo(a.Link)
	case Impair:
		return linkTo(a.Link)
	case SetImpairment:
		return linkTo(a.Link)
	case ReleaseLink:
		return linkTo(a.Link)
	case Connect:
		return linkTo(a.Link)
	case Disconnect:
		return linkTo(a.Link)
	case TakeApart:
		return linkTo(a.Link)
	}
	return ""
}

func (w *world) takes() time.Duration {
	if w.rand == nil {
		return time.Millisecond
	}
	return time.Duration(w.rand.Int64N(int64(20 * time.Millisecond)))
}

// ends has the agent of a node end, if it is in that life still.
func (w *world) ends(of Of, reason string) {
	if w.agents[of.Node] != of.Life {
		return
	}
	w.agents[of.Node] = 0
	w.handle(AgentEnded{of, reason})
}

// crash has the agent of a node end by itself.
func (w *world) crash(node string) {
	w.ends(Of{node, w.agents[node]}, "its agent was killed by SIGKILL")
}

var errGone = errors.New("the agent has ended")

// result carries out an action, and returns what comes of it.
func (w *world) result(a Action) Done {
	if w.fail != nil {
		if d := w.fail(a); d != nil {
			return *d
		}
	}
	if of, ok := agentOf(a); ok && w.agents[of.Node] != of.Life {
		return Done{Err: errGone, Agent: true}
	}
	switch a := a.(type) {
	case MakeSwitch:
		w.switches[a.Spec.Name] = true
	case RemoveSwitch:
		delete(w.switches, a.Spec.Name)
	case StartAgent:
		if w.agents[a.Node] != 0 {
			w.wrong("node %s has two agents", a.Node)
		}
		w.agents[a.Node] = a.Life
	case CheckHealth:
		return Done{Failure: w.healthy(a.Node)}
	case KillAgent:
		w.after(w.takes(), func() { w.ends(a.Of, "its agent was killed by SIGKILL") })
	case SignalAgent:
		if a.Signal == Kill {
			w.after(w.takes(), func() { w.ends(a.Of, "its agent was killed by SIGKILL") })
		}
	case Configure, Reconfigure, SetRoutes, BeginLinks, AwaitSpanningTree, RenewNames, AwaitIdle, PlaceFiles, Execute, PauseAgent, ResumeAgent, ResizeLink:
	default:
		return w.linkResult(a)
	}
	return Done{}
}

// agentOf is the life of a node that an action needs the agent of.
func agentOf(a Action) (of Of, ok bool) {
	switch a := a.(type) {
	case PlaceFiles:
		return a.Of, true
	case Execute:
		return a.Of, true
	case Configure:
		return a.Of, true
	case Reconfigure:
		return a.Of, true
	case SetRoutes:
		return a.Of, true
	case CheckHealth:
		return a.Of, true
	case PauseAgent:
		return a.Of, true
	case ResumeAgent:
		return a.Of, true
	case SignalAgent:
		return a.Of, true
	}
	return Of{}, false
}

func (w *world) link(spec *topology.Link) *worldLink {
	if w.links[spec.Number] == nil {
		w.links[spec.Number] = &worldLink{}
	}
	return w.links[spec.Number]
}

// linkResult carries out an action of a link.
func (w *world) linkResult(a Action) Done {
	whole := func(spec *topology.Link) *worldLink {
		k := w.link(spec)
		if k.made != [2]bool{true, true} {
			w.wrong("%T of %s, whose ends are %v", a, linkTo(spec), k.made)
		}
		return k
	}
	told := func(spec *topology.Link) *worldLink {
		for _, e := range spec.Endpoints {
			if topo := w.given[e.Node]; topo != nil && !slices.ContainsFunc(topo.Links, func(l topology.Link) bool { return l.Endpoints == spec.Endpoints }) {
				w.wrong("%T of %s, of which node %s was not told", a, linkTo(spec), e.Node)
			}
		}
		return whole(spec)
	}
	switch a := a.(type) {
	case MakeEnds:
		k := w.link(a.Link)
		for end, made := range a.Ends {
			if !made {
				continue
			}
			e := a.Link.Endpoints[end]
			if n := w.lab.topo.FindNode(e.Node); n != nil && n.Kind != topology.Switch && w.agents[e.Node] == 0 && !w.dying(e.Node) {
				w.wrong("an interface of %s is made in a node without an agent", linkTo(a.Link))
			}
			if k.made[end] {
				w.wrong("end %d of %s is made twice", end, linkTo(a.Link))
			}
			k.made[end] = true
		}
	case RemoveEnd:
		k := w.link(a.Link)
		if k.engine || k.connected {
			w.wrong("an end of %s goes that carries packets", linkTo(a.Link))
		}
		k.made[a.End] = false
	case Impair:
		k := told(a.Link)
		k.engine, k.impairs = true, a.Asked
	case SetImpairment:
		k := whole(a.Link)
		if !k.engine {
			w.wrong("%s has no engine", linkTo(a.Link))
		}
		k.impairs[a.Direction] = a.To
	case ReleaseLink:
		whole(a.Link).engine = false
	case Connect:
		told(a.Link).connected = true
	case Disconnect:
		w.link(a.Link).connected = false
	case TakeApart:
		k := w.link(a.Link)
		k.engine, k.connected = false, false
	default:
		w.wrong("unknown action %T", a)
	}
	return Done{}
}

// dying reports whether the end of a node's agent is known here and not yet there.
func (w *world) dying(name string) bool {
	n := w.lab.byName[name]
	return n == nil || n.ended || n.phase == removing
}

// judge says where wanted and found differ in a lab at rest.
func (w *world) judge() {
	w.t.Helper()
	for _, n := range w.lab.nodes {
		if has := w.agents[n.spec.Name] != 0; has == n.down() {
			w.wrong("node %s is down: %t, and has an agent: %t", n.spec.Name, n.down(), has)
		}
		if len(n.requests) > 0 {
			w.wrong("node %s has %d requests", n.spec.Name, len(n.requests))
		}
	}
	for _, k := range w.lab.links {
		is := w.link(k.spec)
		up := func(end int) bool {
			n, b := k.nodes[end], k.bridges[end]
			return (n == nil || !n.down()) && (b == nil || b.made)
		}
		whole := up(0) && up(1)
		if w.lab.unfinished != "" && k.configured != [2]bool{true, true} { // what it takes is for the next Apply to do
			whole = false
		}
		switch {
		case k.stuck != nil && (w.saw(k.stuck.Error()) || w.lab.unfinished != ""): // until it is asked for something else
		case is.made != [2]bool{up(0), up(1)}:
			w.wrong("%s has the ends %v", linkTo(k.spec), is.made)
		case is.connected != (whole && !k.asked.down && !k.asked.partitioned && w.switchesForward(k.spec)):
			w.wrong("%s is connected: %t, whole: %t, asked: %+v", linkTo(k.spec), is.connected, whole, k.asked)
		case whole && k.asked.impaired() && (!is.engine || !is.impairs[0].Equal(k.asked.impairments[0]) || !is.impairs[1].Equal(k.asked.impairments[1])):
			w.wrong("%s does not what is asked of it", linkTo(k.spec))
		case !k.asked.impaired() && is.engine:
			w.wrong("%s stays with its engine", linkTo(k.spec))
		case len(k.requests)+len(k.plain) > 0:
			w.wrong("%s has %d requests", linkTo(k.spec), len(k.requests))
		}
	}
	for id := uint64(1); id <= w.asked; id++ {
		if w.answers[id] == nil && w.lab.unfinished == "" { // else it may wait for what the next Apply does
			w.wrong("command %d was not answered", id)
		}
	}
	for name := range w.agents {
		if w.agents[name] != 0 && w.lab.byName[name] == nil {
			w.wrong("node %s has gone, and has an agent", name)
		}
	}
	numbers := map[int]bool{}
	for _, k := range w.lab.links {
		numbers[k.spec.Number] = true
	}
	for number, k := range w.links {
		if !numbers[number] && (k.made != [2]bool{} || k.engine || k.connected) {
			w.wrong("a link has gone, and is %+v", *k)
		}
	}
}

// saw reports whether something was told.
func (w *world) saw(text string) bool { return slices.Contains(w.told, text) }

// switchesForward reports whether no switch at a link is down or paused.
func (w *world) switchesForward(spec *topology.Link) bool {
	for _, e := range spec.Endpoints {
		if w.lab.switchOf(e.Node) != nil && w.lab.Node(e.Node).State != NodeIsReady {
			return false
		}
	}
	return true
}
