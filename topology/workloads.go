package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of workloads, and who exchanges messages with whom in each;
// what the keys are together is in workloadkeys.go.

// A workloadMap is an entry of workloads, with what becomes of it when the whole lab is
// known.
type workloadMap struct {
	Workload
	nodes []val[string] // names of hosts, or patterns of them
	size  sizesMap
	exec  []execMap
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

// Defaults of workloads.
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
	messageCount = count[uint64](1, 1<<40)
	runTime      = span(time.Millisecond, 24*time.Hour)
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

// The operations that keys stand with.
var (
	messageOperations = []Operation{Send, Write, Read}
	// flowOperations are those whose workloads have flows of any pattern, and
	// queueOperations those of them that have queue pairs of their own.
	flowOperations  = []Operation{Send, Write, Read, Connect, Storage, Rping}
	queueOperations = []Operation{Send, Write, Read, Connect, Storage}
	sizedOperations = []Operation{Send, Write, Read, Storage, AllReduce, Rping}
	untilOperations = []Operation{Send, Write, Read, Connect, Storage, AllReduce, Rping}
)

var workloadTable = sync.OnceValue(func() *keyTable[workloadMap] {
	return &keyTable[workloadMap]{
		what: "a workload", noun: "workload", def: "workload",
		also: workloadRules, initial: workloadMap{Workload: Workload{Pattern: Pair, Depth: 1, QPs: 1}},
		keys: []key[workloadMap]{
			one("name", single(plainName(maxNodeName), workloadNameSchema), func(m *workloadMap) *string { return &m.Name },
				"the workload's, needed; with a range such as `flow-[1-4]` one workload for each"),
			one("operation", manyWords(func() []Operation { return operations }), func(m *workloadMap) *Operation { return &m.Operation },
				"what it does: messages of `send`, `write` or `read`, connections of `connect`, requests of `storage`, rounds of `allreduce` or `rping`, or the program of `exec`. Needed, but with the key `exec`"),
			only(one("from", anyText, func(m *workloadMap) *string { return &m.From }, "the host that connects and posts; a range where the name has one"), flowOperations...),
			only(one("to", anyText, func(m *workloadMap) *string { return &m.To }, "the host that it connects to; a range where the name has one"), flowOperations...),
			only(one("pattern", manyWords(func() []Pattern { return patterns }), func(m *workloadMap) *Pattern { return &m.Pattern }, "who exchanges messages with whom"), flowOperations...).orElse("`pair`, `from` with `to`"),
			one("nodes", nameList, func(m *workloadMap) *[]val[string] { return &m.nodes }, "a host or a list of hosts, by name or by patterns such as `\"worker-*\"`: `\"*\"` is all hosts"),
			only(one("size", sizesForm, func(m *workloadMap) *sizesMap { return &m.size },
				"of a message, request or vector, 0B to 1GiB; `[64B, 4KiB]`, of `send`, `write` and `read`, a sweep: one size after the other, with `count`, `duration` and `warmup` for each; `all`: a sweep of the powers of two from 2B to 8MiB; `{mix: [1KiB, 64KiB]}`, of these and `storage`: each message has one of the sizes, at random. Needed"), sizedOperations...),
			only(one("measure", manyWords(func() []Measure { return measures }), func(m *workloadMap) *Measure { return &m.Measure },
				"`bandwidth`: as many messages as possible, `depth` of them in flight; `latency`: one at a time, answered in kind, of which half the way there and back is the latency (a `read` is its own answer)"), messageOperations...).orElse("`bandwidth`"),
			only(one("depth", count[int](1, 4096), func(m *workloadMap) *int { return &m.Depth },
				"messages or requests in flight on a connection, $range; of `connect` connections that are made at once. Not with `measure: latency`"), queueOperations...).orElse("1; of `connect` " + strconv.Itoa(defaultConnects)),
			only(one("qps", count[int](1, 1<<16), func(m *workloadMap) *int { return &m.QPs },
				"connections of each flow, $range; of `connect` those that are open at once"), queueOperations...).orElse("1; of `connect` as many as `depth`"),
			only(one("inline", yes, func(m *workloadMap) *bool { return &m.Inline },
				"`true`: messages are sent inline, which then have no more than the adapter's `max_inline_data_size` (absent: 928 bytes)"), Send, Write).orElse("`false`"),
			only(one("srq", yes, func(m *workloadMap) *bool { return &m.SRQ }, "`true`: the queue pairs of the server take receives from one SRQ"), Send).orElse("`false`"),
			only(one("completion", choice("event", "poll"), func(m *workloadMap) *bool { return &m.Polling },
				"`event`: completions are waited for; `poll`: asked for all the time"), messageOperations...).orElse("`event`"),
			only(one("rate", ranged(parseRate, FormatRate, 1, maxRate, rates.schema), func(m *workloadMap) *uint64 { return &m.Rate },
				"of payload, that each flow posts at most, `2gbit`"), messageOperations...).orElse("no limit"),
			only(one("count", messageCount, func(m *workloadMap) *uint64 { return &m.Count },
				"how many messages, connections, requests or rounds in each flow. This or `duration` is needed"), untilOperations...),
			only(one("duration", runTime, func(m *workloadMap) *time.Duration { return &m.Duration }, "for how long"), untilOperations...),
			only(one("warmup", instant, func(m *workloadMap) *time.Duration { return &m.WarmUp },
				"at the beginning, before `count` or `duration`, and not measured"), messageOperations...).orElse("none"),
			only(one("verify", yes, func(m *workloadMap) *bool { return &m.Verify }, "`true`: every payload is compared byte for byte"), sizedOperations...).orElse("`false`"),
			only(one("reconnect", yes, func(m *workloadMap) *bool { return &m.Reconnect },
				"`true`: a connection that fails is made again, and what was in flight is posted once more; `false`: it is an error"), Send, Write, Read, Storage).orElse("`false`"),
			only(one("command", commandForm, func(m *workloadMap) *[]string { return &m.Command },
				"text that `sh -c` runs, or a list of the program and its arguments. Needed"), Program),
			only(one("timeout", runTime, func(m *workloadMap) *time.Duration { return &m.Timeout },
				"from which a program has failed, and is ended"), Program).orElse("10m"),
			one("exec", form[[]execMap]{read: execMaps, schema: programsSchema}, func(m *workloadMap) *[]execMap { return &m.exec },
				"a server and its clients, [programs](#programs) of yours, by the hosts that they run in"),
			one("ready", single(readiness, readySchema), func(m *workloadMap) *Readiness { return &m.Ready },
				"with the key `exec`: when the server is ready, from when on the clients begin, all at once: `listening`: it listens, for TCP or by librdmacm; a port: it listens there; `started`: as soon as it runs").orElse("`listening`"),
			startKey("when, after all nodes are ready; `manual`: when the [timeline](#timeline) starts it").orElse("at once"),
		},
	}
})

var workloadForm = mapOf(workloadTable, func(m *mapping[workloadMap]) *mapping[workloadMap] {
	if m.has("exec") && !m.has("operation") {
		m.is.Operation = Program
	}
	keysAgree(m)
	return m
})

func workloadNameSchema() schema {
	return anyOf(nameSchema(maxNodeName), schema{"type": "string", "pattern": rangePattern})
}

// startKey is the key of when a workload starts.
func startKey(doc string) key[workloadMap] {
	f := single(func(text string) (start time.Duration, err error) {
		if text != manual {
			if start, err = instant.parse(text); err != nil {
				err = fmt.Errorf("%w, or manual: the timeline starts it", err)
			}
		}
		return start, err
	}, func() schema { return orVariable(anyOf(schema{"const": manual}, durationSchema())) })
	return readBy("start", f.schema, func(r *reader, n *yaml.Node) func(*workloadMap) {
		start := f.of(r, n).is
		return func(m *workloadMap) { m.Start, m.Manual = start, n.Value == manual }
	}, doc)
}

var mixTable = sync.OnceValue(func() *keyTable[sizesMap] {
	list := form[[]uint64]{read: sizeList, schema: sizeListSchema}
	return &keyTable[sizesMap]{
		what: "a size", noun: "size", def: "mix", required: []string{"mix"}, initial: sizesMap{mixed: true},
		keys: []key[sizesMap]{one("mix", list, func(m *sizesMap) *[]uint64 { return &m.sizes }, "sizes, of which each message has one, at random")},
	}
})

func sizeListSchema() schema {
	return schema{"type": "array", "items": sizes.schema(), "minItems": 1, "maxItems": maxSizes}
}

// sizesForm is a size, those of a sweep or those of a mix.
var sizesForm = form[sizesMap]{
	schema: func() schema {
		return anyOf(orVariable(anyOf(sizes.schema(), schema{"const": allSizes})), sizeListSchema(), mixTable().reference())
	},
	read: func(r *reader, n *yaml.Node) (m sizesMap) {
		switch {
		case n.Kind == yaml.SequenceNode:
			m.sizes = sizeList(r, n)
		case n.Kind == yaml.MappingNode:
			m = mixTable().read(r, n).is
		case n.Value == allSizes:
			m.sizes = sweep()
		case isNull(n):
			r.valueError(n, "found nothing, expected a size such as 64KiB, all, a list for a sweep or {mix: [...]}")
		default:
			m.sizes = []uint64{messageSize.of(r, n).is}
		}
		return m
	},
}

func sizeList(r *reader, n *yaml.Node) []uint64 {
	var list []uint64
	if n.Kind != yaml.SequenceNode {
		r.valueError(n, "found %s, expected a list of sizes such as [4KiB, 64KiB]", describe(n))
		return nil
	}
	if len(n.Content) == 0 || len(n.Content) > maxSizes {
		r.valueError(n, "%d sizes, expected 1 to %d", len(n.Content), maxSizes)
		return nil
	}
	r.items(n, func(n *yaml.Node) { list = append(list, messageSize.of(r, n).is) })
	return list
}

// commandForm reads a command: a text for sh -c, or a program and its arguments.
var commandForm = form[[]string]{
	schema: func() schema { return reference("command") },
	read: func(r *reader, n *yaml.Node) (words []string) {
		if n.Kind != yaml.SequenceNode {
			return []string{"sh", "-c", commandText.of(r, n).is}
		}
		r.items(n, func(n *yaml.Node) {
			parse := argument(maxArgument)
			if words == nil {
				parse = commandText.parse
			}
			words = append(words, scalar(r, n, parse).is)
		})
		if len(words) == 0 {
			r.valueError(n, "found nothing in the list, expected a program and its arguments")
		}
		return words
	},
}

// A workloadReader makes workloads of what the file says.
type workloadReader struct {
	*nameIndex
	parts, in []int // of each link: see Topology.parts and Topology.Segments
	hosts     []string
	partners  int // see maxPartners
}

// workloads checks that the nodes of every workload exist and are joined.
func workloads(l *nameIndex, maps []*mapping[workloadMap], segments []segment) []Workload {
	t := l.lab
	w := workloadReader{nameIndex: l, parts: t.parts(segments), in: segmentOf(segments, len(t.Links)), hosts: t.Hosts()}
	var workloads []Workload
	names := make(map[string]*yaml.Node)
	for _, m := range maps {
		if name := m.word("name"); name.ok {
			if first := names[name.is]; first != nil {
				l.errorf(name.at, "a second workload %q, expected another name (line %d has it)", name.is, first.Line)
			} else {
				names[name.is] = name.at
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

func (w *workloadReader) workload(m *mapping[workloadMap]) Workload {
	is := m.is.Workload
	is.Place, is.Mixed = m.where(), m.is.size.mixed
	is.Pattern = cmp.Or(is.Pattern, Pair) // also where it is wrong
	if list := m.is.size.sizes; len(list) > 0 {
		is.Size = slices.Max(list)
		if len(list) > 1 || is.Mixed {
			is.Sizes = list
		}
	}
	switch is.Operation {
	case Send, Write, Read:
		is.Measure = cmp.Or(is.Measure, Bandwidth)
	case Connect:
		if !m.ok("depth") {
			is.Depth = defaultConnects
		}
		if !m.ok("qps") {
			is.QPs = is.Depth
		}
	case AllReduce:
		is.Pattern = Ring
	case Program:
		is.Pattern, is.Depth, is.QPs = "", 0, 0
		is.Timeout = cmp.Or(is.Timeout, defaultTimeout)
	}
	if at := m.place("name"); at != nil && !m.ok("name") {
		is.Name = at.Value // that it is wrong was reported: others may refer to it
	}
	if m.has("exec") {
		w.programsOf(&is, m)
	} else {
		w.partnersOf(&is, m)
	}
	return is
}

// partnersOf gives a workload its nodes and flows.
func (w *workloadReader) partnersOf(is *Workload, m *mapping[workloadMap]) {
	from, to := m.word("from"), m.word("to")
	if is.Pattern == Pair {
		if w.pair(from, to) {
			is.Flows = []Flow{{from.is, to.is}}
		}
		return
	}
	is.From, is.To = "", ""
	center := to // of Incast
	if is.Pattern == Broadcast {
		center = from
	}
	if centered := is.Pattern == Incast || is.Pattern == Broadcast; !m.ok("operation") || !m.ok("nodes") || centered && !center.ok {
		return
	}
	list := m.is.nodes
	if center.at != nil {
		list = append([]val[string]{center}, list...)
	}
	nodes, ok := w.named(list, "host", w.hosts, w.host)
	switch {
	case !ok:
		return
	case len(nodes) == 1 && is.Operation != Program:
		w.errorf(m.place("nodes"), "the workload has only the node %s, expected more", nodes[0])
		return
	}
	number := len(nodes)
	if is.Pattern == AllToAll {
		number *= number - 1
	}
	if !w.mayHave(number, m.place("nodes")) {
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
	a, b := w.host(from), w.host(to)
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
	if w.broken {
		return true
	}
	a, b := &w.lab.Nodes[w.nodes[from]], &w.lab.Nodes[w.nodes[to]]
	if !meet(a, b, w.parts) {
		w.errorf(at, "no link, switch or router joins %s and %s, expected nodes that are joined: hosts do not forward", from, to)
		return false
	}
	if _, ok := w.lab.PathIn(a, b, w.in); !ok && len(w.errors) == 0 {
		w.errorf(at, "no address of %s is reached from %s by one of its own family, expected IPv4 or IPv6 on all of the way", to, from)
		return false
	}
	return true
}

// reach reports the first two nodes of a workload that have no path between them. It is
// not known as yet which of a Permutation's have to have one: all that are next to each
// other in the list do, so that nodes in several parts of the lab are found.
func (w *workloadReader) reach(is *Workload, m *mapping[workloadMap]) {
	all := is.Flows
	if is.Pattern == Permutation {
		all = flows(Ring, is.Nodes)
	}
	for _, f := range all {
		if !w.joined(f.From, f.To, m.place("nodes")) {
			return
		}
	}
}

// flows returns who connects to whom in a pattern but Permutation.
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
