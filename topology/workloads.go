package topology

import (
	"fmt"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of workloads, and who exchanges messages with whom in each;
// what the keys are together is in workloadkeys.go.

// A workloadMap is an entry of workloads.
type workloadMap struct {
	at                   *yaml.Node
	name, from, to       val[string]
	operation            val[Operation]
	pattern              val[Pattern]
	nodes                val[[]val[string]] // names of hosts, or patterns of them
	size                 val[sizesMap]
	measure              val[Measure]
	depth, qps           val[int]
	inline, srq, polling val[bool]
	rate, count          val[uint64]
	duration, warmup     val[time.Duration]
	verify, reconnect    val[bool]
	command              val[[]string]
	exec                 val[[]execMap]
	ready                val[Readiness]
	timeout              val[time.Duration]
	start                val[startMap]
}

// Texts of rping have these sizes, of what they begin with and at most
// (RPING_MIN_BUFSIZE and RPING_BUFSIZE of rdma-core's rping).
const (
	rpingLeast = 28
	rpingMost  = 64<<10 - 1
)

// A sizesMap is one size or several.
type sizesMap struct {
	sizes []uint64
	mixed bool
}

// A startMap is when a workload starts.
type startMap struct {
	at     time.Duration
	manual bool
}

// What a workload has where its file says nothing.
const (
	defaultConnects = 16 // connections that are made at once
	defaultTimeout  = 10 * time.Minute
)

// Bounds of workloads.
const (
	maxSizes = 64
	// maxPartners bounds how many flows and nodes all workloads of a lab have together.
	maxPartners = 1 << 16
)

// sweep is the sizes of "all": those of perftest's -a.
func sweep() []uint64 {
	var all []uint64
	for size := uint64(2); size <= 8<<20; size *= 2 {
		all = append(all, size)
	}
	return all
}

// The values of workloads.
var (
	messageSize  = sized[uint64](sizes, 0, 1<<30)
	queueDepth   = count[int](1, 4096)
	qpCount      = count[int](1, 1<<16)
	messageCount = count[uint64](1, 1<<40)
	runTime      = span(time.Millisecond, 24*time.Hour)
	postRate     = within(parseRate, FormatRate, 1, maxRate)
	instant      = span(0, 24*time.Hour)
)

// The words of workloads.
var (
	operations = []Operation{Send, Write, Read, Connect, Storage, AllReduce, Rping, Program}
	patterns   = []Pattern{Pair, Ring, AllToAll, Incast, Broadcast, Permutation}
	measures   = []Measure{Bandwidth, Latency}
)

const (
	allSizes = "all"
	manual   = "manual"
)

func (r *reader) workloadMap(n *yaml.Node) workloadMap {
	m := workloadMap{at: n}
	r.fields(n, "a workload",
		one(r, "name", &m.name, plainName(maxNodeName)),
		one(r, "operation", &m.operation, wordOf(r, operations)),
		one(r, "from", &m.from, anyText),
		one(r, "to", &m.to, anyText),
		one(r, "pattern", &m.pattern, wordOf(r, patterns)),
		field{"nodes", func(n *yaml.Node) { m.nodes = r.nameList(n) }},
		field{"size", func(n *yaml.Node) { m.size = r.sizes(n) }},
		one(r, "measure", &m.measure, wordOf(r, measures)),
		one(r, "depth", &m.depth, queueDepth),
		one(r, "qps", &m.qps, qpCount),
		one(r, "inline", &m.inline, yes),
		one(r, "srq", &m.srq, yes),
		one(r, "completion", &m.polling, choice("event", "poll")),
		one(r, "rate", &m.rate, postRate),
		one(r, "count", &m.count, messageCount),
		one(r, "duration", &m.duration, runTime),
		one(r, "warmup", &m.warmup, instant),
		one(r, "verify", &m.verify, yes),
		one(r, "reconnect", &m.reconnect, yes),
		field{"command", func(n *yaml.Node) { m.command = r.command(n) }},
		field{"exec", func(n *yaml.Node) { m.exec = r.execMaps(n) }},
		one(r, "ready", &m.ready, readiness),
		one(r, "timeout", &m.timeout, runTime),
		one(r, "start", &m.start, workloadStart),
	)
	if m.exec.at != nil && m.operation.at == nil {
		m.operation.is = Program
	}
	r.keysAgree(&m)
	return m
}

// wordOf is a parser for one of some words.
func wordOf[T ~string](r *reader, words []T) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(words, T(text)) {
			return T(text), nil
		}
		known := make([]string, len(words))
		for i, w := range words {
			known[i] = string(w)
		}
		return "", fmt.Errorf("found %s, %s", quote(text), r.expectation(text, known))
	}
}

// workloadStart is a parser for when a workload starts.
func workloadStart(text string) (startMap, error) {
	if text == manual {
		return startMap{manual: true}, nil
	}
	at, err := instant(text)
	if err != nil {
		err = fmt.Errorf("%w, or manual: the timeline starts it", err)
	}
	return startMap{at: at}, err
}

// sizes reads a size, those of a sweep or those of a mix.
func (r *reader) sizes(n *yaml.Node) val[sizesMap] {
	v := val[sizesMap]{at: n}
	before := len(r.errors)
	switch {
	case n.Kind == yaml.SequenceNode:
		v.is.sizes = r.sizeList(n)
	case n.Kind == yaml.MappingNode:
		v.is.mixed = true
		var mix val[[]uint64]
		r.fields(n, "a size", field{"mix", func(n *yaml.Node) { mix = val[[]uint64]{at: n, is: r.sizeList(n)} }})
		r.required(n, "size", need("mix", mix))
		v.is.sizes = mix.is
	case n.Value == allSizes:
		v.is.sizes = sweep()
	case isNull(n):
		r.valueError(n, "found nothing, expected a size such as 64KiB, all, a list for a sweep or {mix: [...]}")
	default:
		v.is.sizes = []uint64{scalar(r, n, messageSize).is}
	}
	v.ok = len(r.errors) == before
	return v
}

func (r *reader) sizeList(n *yaml.Node) []uint64 {
	var list []uint64
	if n.Kind != yaml.SequenceNode {
		r.valueError(n, "found %s, expected a list of sizes such as [4KiB, 64KiB]", describe(n))
		return nil
	}
	if len(n.Content) == 0 || len(n.Content) > maxSizes {
		r.valueError(n, "%d sizes, expected 1 to %d", len(n.Content), maxSizes)
		return nil
	}
	r.items(n, func(n *yaml.Node) { list = append(list, scalar(r, n, messageSize).is) })
	return list
}

// command reads what is executed: a text for sh -c, or a program and its arguments.
func (r *reader) command(n *yaml.Node) val[[]string] {
	v := val[[]string]{at: n}
	before := len(r.errors)
	if n.Kind != yaml.SequenceNode {
		v.is = []string{"sh", "-c", scalar(r, n, command).is}
	} else {
		r.items(n, func(n *yaml.Node) {
			parse := argument(maxArgument)
			if v.is == nil {
				parse = command
			}
			v.is = append(v.is, scalar(r, n, parse).is)
		})
		if len(v.is) == 0 {
			r.valueError(n, "found nothing in the list, expected a program and its arguments")
		}
	}
	v.ok = len(r.errors) == before
	return v
}

// A workloadReader makes workloads of what the file says.
type workloadReader struct {
	*reader
	linked    *linked
	lab       *Topology
	parts, in []int // of each link: see Topology.parts and Topology.Segments
	hosts     []string
	partners  int // see maxPartners
}

// workloads checks that the nodes of every workload exist and are joined.
func (r *reader) workloads(maps []workloadMap, l *linked, t *Topology, segments []segment) []Workload {
	w := workloadReader{reader: r, linked: l, lab: t, parts: t.parts(segments), in: segmentOf(segments, len(t.Links)), hosts: t.Hosts()}
	var workloads []Workload
	names := make(map[string]*yaml.Node)
	for _, m := range maps {
		if m.name.ok {
			if first := names[m.name.is]; first != nil {
				r.errorf(m.name.at, "a second workload %q, expected another name (line %d has it)", m.name.is, first.Line)
			} else {
				names[m.name.is] = m.name.at
			}
		}
		workloads = append(workloads, w.workload(m))
	}
	return workloads
}

// workloadsByName is the workloads by name, and the names in the order of the file.
func (t *Topology) workloadsByName() (byName map[string]*Workload, names []string) {
	byName = make(map[string]*Workload, len(t.Workloads))
	for i := range t.Workloads {
		w := &t.Workloads[i]
		if byName[w.Name] == nil && w.Name != "" {
			byName[w.Name] = w
			names = append(names, w.Name)
		}
	}
	return byName, names
}

// Hosts is the names of all hosts, in the order of the topology.
func (t *Topology) Hosts() []string {
	var hosts []string
	for _, n := range t.Nodes {
		if n.Kind == Host {
			hosts = append(hosts, n.Name)
		}
	}
	return hosts
}

func (w *workloadReader) workload(m workloadMap) Workload {
	is := Workload{
		Name:      m.name.is,
		Operation: m.operation.is,
		Pattern:   m.pattern.orElse(Pair),
		Mixed:     m.size.is.mixed,
		Measure:   m.measure.is,
		Depth:     m.depth.orElse(1),
		QPs:       m.qps.orElse(1),
		Inline:    m.inline.is,
		SRQ:       m.srq.is,
		Polling:   m.polling.is,
		Rate:      m.rate.is,
		Count:     m.count.is,
		Duration:  m.duration.is,
		WarmUp:    m.warmup.is,
		Verify:    m.verify.is,
		Reconnect: m.reconnect.is,
		Command:   m.command.is,
		Ready:     m.ready.is,
		Start:     m.start.is.at,
		Manual:    m.start.is.manual,
		Place:     Place{w.file, m.at.Line, m.at.Column},
	}
	if list := m.size.is.sizes; len(list) > 0 {
		is.Size = slices.Max(list)
		if len(list) > 1 || is.Mixed {
			is.Sizes = list
		}
	}
	switch is.Operation {
	case Send, Write, Read:
		is.Measure = m.measure.orElse(Bandwidth)
	case Connect:
		is.Depth = m.depth.orElse(defaultConnects)
		is.QPs = m.qps.orElse(is.Depth)
	case AllReduce:
		is.Pattern = Ring
	case Program:
		is.Pattern, is.Depth, is.QPs = "", 0, 0
		is.Timeout = m.timeout.orElse(defaultTimeout)
	}
	if m.name.at != nil && !m.name.ok {
		is.Name = m.name.at.Value // that it is wrong was reported: others may refer to it
	}
	if m.exec.at != nil {
		w.programsOf(&is, m)
	} else {
		w.partnersOf(&is, m)
	}
	return is
}

// partnersOf gives a workload its nodes and flows.
func (w *workloadReader) partnersOf(is *Workload, m workloadMap) {
	if is.Pattern == Pair {
		is.From, is.To = m.from.is, m.to.is
		if w.pair(m.from, m.to) {
			is.Flows = []Flow{{m.from.is, m.to.is}}
		}
		return
	}
	center := m.to // of Incast
	if is.Pattern == Broadcast {
		center = m.from
	}
	if centered := is.Pattern == Incast || is.Pattern == Broadcast; !m.operation.ok || !m.nodes.ok || centered && !center.ok {
		return
	}
	list := m.nodes.is
	if center.at != nil {
		list = append([]val[string]{center}, list...)
	}
	nodes, ok := w.named(list, "host", w.hosts, func(v val[string]) bool { return w.host(v, w.linked, w.lab.Nodes) })
	switch {
	case !ok:
		return
	case len(nodes) == 1 && is.Operation != Program:
		w.errorf(m.nodes.at, "the workload has only the node %s, expected more", nodes[0])
		return
	}
	number := len(nodes)
	if is.Pattern == AllToAll {
		number *= number - 1
	}
	if !w.mayHave(number, m.nodes.at) {
		return
	}
	is.Nodes = nodes
	is.Flows = flows(is.Pattern, nodes)
	w.reach(is, m)
}

// mayHave counts flows or nodes of a workload, and reports at a place if there are too many.
func (w *workloadReader) mayHave(number int, at *yaml.Node) bool {
	w.partners += number
	if w.partners > maxPartners && w.partners-number <= maxPartners {
		w.errorf(at, "the workloads have more than %d flows with this one, expected fewer", maxPartners)
	}
	return w.partners <= maxPartners
}

// pair reports whether one node can send messages to another.
func (w *workloadReader) pair(from, to val[string]) bool {
	a, b := w.host(from, w.linked, w.lab.Nodes), w.host(to, w.linked, w.lab.Nodes)
	switch {
	case !a || !b:
		return false
	case from.is == to.is:
		w.errorf(to.at, "the workload goes from %s to itself, expected another node", from.is)
		return false
	}
	w.joined(from.is, to.is, to.at)
	return true
}

// joined reports at a place if there is no way from one node to another.
func (w *workloadReader) joined(from, to string, at *yaml.Node) bool {
	if w.linked.broken {
		return true
	}
	a, b := &w.lab.Nodes[w.linked.nodes[from]], &w.lab.Nodes[w.linked.nodes[to]]
	if !meet(a, b, w.parts) {
		w.errorf(at, "no link, switch or router joins %s and %s, expected nodes that are joined: hosts do not forward", from, to)
		return false
	}
	if _, ok := w.lab.path(a, b, w.in); !ok && len(w.errors) == 0 {
		w.errorf(at, "no address of %s is reached from %s by one of its own family, expected IPv4 or IPv6 on all of the way", to, from)
		return false
	}
	return true
}

// reach reports the first two nodes of a workload that have no way between them. Which
// of a Permutation's have to have one is not known as yet: all that are next to each other
// in the list do, so that nodes in several parts of the lab are found.
func (w *workloadReader) reach(is *Workload, m workloadMap) {
	all := is.Flows
	if is.Pattern == Permutation {
		all = flows(Ring, is.Nodes)
	}
	for _, f := range all {
		if !w.joined(f.From, f.To, m.nodes.at) {
			return
		}
	}
}

// flows is who connects to whom in a pattern but Permutation.
func flows(p Pattern, nodes []string) []Flow {
	var all []Flow
	for i, n := range nodes {
		switch p {
		case Ring:
			all = append(all, Flow{n, nodes[(i+1)%len(nodes)]})
		case AllToAll:
			for j, to := range nodes {
				if i != j {
					all = append(all, Flow{n, to})
				}
			}
		case Incast:
			if i > 0 {
				all = append(all, Flow{n, nodes[0]})
			}
		case Broadcast:
			if i > 0 {
				all = append(all, Flow{nodes[0], n})
			}
		}
	}
	return all
}
