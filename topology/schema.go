package topology

import (
	"math"
	"net/netip"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the schema: one type and one function for each map of a topology
// file, with its keys and what their values may be; the adapter block, which has
// many, is in adapter.go. What depends on more than one value (precedence,
// references, addresses) is in parse.go and the files it leads to.

// A labMap is the whole file.
type labMap struct {
	at        *yaml.Node
	name      val[string]
	seed      val[uint64]
	topology  topologyMap
	workloads []workloadMap
	timeline  []eventMap
	checks    []checkMap
	captures  []captureMap
}

func (r *reader) labMap(n *yaml.Node) labMap {
	m := labMap{at: n}
	if isMap(n) {
		m.topology.at = n // until the key topology has a place of its own
	}
	r.fields(n, "a lab",
		one(r, "name", &m.name, plainName(maxLabName)),
		one(r, "seed", &m.seed, count[uint64](0, math.MaxUint64)),
		field{"topology", func(n *yaml.Node) { m.topology = r.topologyMap(n) }},
		list(r, "workloads", &m.workloads, r.workloadMap),
		list(r, "timeline", &m.timeline, r.eventMap),
		list(r, "checks", &m.checks, r.checkMap),
		list(r, "capture", &m.captures, r.captureMap),
	)
	return m
}

type topologyMap struct {
	at       *yaml.Node // where nodes are missed, if they are; nil if something else is wrong there
	defaults defaultsMap
	kinds    []named[kindMap]
	groups   []named[groupMap]
	nodes    []named[nodeMap]
	links    []linkMap
}

func (r *reader) topologyMap(n *yaml.Node) topologyMap {
	m := topologyMap{at: n}
	r.fields(n, "topology",
		field{"defaults", func(n *yaml.Node) { m.defaults = r.defaultsMap(n) }},
		names(r, "kinds", &m.kinds, r.kindMap),
		names(r, "groups", &m.groups, r.groupMap),
		field{"nodes", func(n *yaml.Node) {
			m.at = n
			names(r, "nodes", &m.nodes, r.nodeMap).read(n)
		}},
		list(r, "links", &m.links, r.linkMap),
	)
	if !isMap(m.at) {
		m.at = nil
	}
	return m
}

// Defaults apply to every node and link. The adapter has a place of its own
// beside node, not inside it.
type defaultsMap struct {
	kind, group val[string]
	limits      limits
	mtu         val[int]
	impairment  impairment
}

func (r *reader) defaultsMap(n *yaml.Node) defaultsMap {
	var m defaultsMap
	r.fields(n, "defaults",
		field{"node", func(n *yaml.Node) {
			r.fields(n, "the node defaults",
				one(r, "kind", &m.kind, anyText),
				one(r, "group", &m.group, anyText),
				one(r, "cpu", &m.limits.cpu, cores),
				one(r, "memory", &m.limits.memory, memory),
			)
		}},
		field{"link", func(n *yaml.Node) {
			r.fields(n, "the link defaults", append(r.impairment(&m.impairment),
				one(r, "mtu", &m.mtu, mtu),
			)...)
		}},
		field{"adapter", func(n *yaml.Node) { m.limits.adapter = r.adapter(n) }},
	)
	return m
}

type kindMap struct {
	group  val[string]
	limits limits
}

func (r *reader) kindMap(n *yaml.Node) kindMap {
	var m kindMap
	r.fields(n, "a kind", append(r.limits(&m.limits),
		one(r, "group", &m.group, anyText),
	)...)
	return m
}

type groupMap struct {
	kind   val[string]
	limits limits
}

func (r *reader) groupMap(n *yaml.Node) groupMap {
	var m groupMap
	r.fields(n, "a group", append(r.limits(&m.limits),
		one(r, "kind", &m.kind, anyText),
	)...)
	return m
}

type nodeMap struct {
	kind, group val[string]
	limits      limits
}

func (r *reader) nodeMap(n *yaml.Node) nodeMap {
	var m nodeMap
	r.fields(n, "a node", append(r.limits(&m.limits),
		one(r, "kind", &m.kind, anyText),
		one(r, "group", &m.group, anyText),
	)...)
	return m
}

// The limits are the keys that nodes, groups and kinds share.
type limits struct {
	cpu     val[float64]
	memory  val[uint64]
	adapter adapter
}

func (r *reader) limits(m *limits) []field {
	return []field{
		one(r, "cpu", &m.cpu, cores),
		one(r, "memory", &m.memory, memory),
		{"adapter", func(n *yaml.Node) { m.adapter = r.adapter(n) }},
	}
}

type linkMap struct {
	at         *yaml.Node
	endpoints  []endpointMap
	mtu        val[int]
	impairment impairment
	reverse    impairment  // of packets sent by the second endpoint
	capture    val[string] // true, false or a path
}

func (r *reader) linkMap(n *yaml.Node) linkMap {
	m := linkMap{at: n}
	r.fields(n, "a link", append(r.impairment(&m.impairment),
		list(r, "endpoints", &m.endpoints, r.endpointMap),
		one(r, "mtu", &m.mtu, mtu),
		one(r, "capture", &m.capture, linkCapture),
		field{"reverse", func(n *yaml.Node) { r.fields(n, "reverse", r.impairment(&m.reverse)...) }},
	)...)
	return m
}

// An impairment is the Change of the same fields.
type impairment struct {
	delay  val[time.Duration]
	jitter val[Jitter]
	loss   val[Loss]
	rate   val[uint64]
}

func (r *reader) impairment(m *impairment) []field {
	return []field{
		one(r, "delay", &m.delay, linkDelay),
		one(r, "jitter", &m.jitter, linkJitter),
		one(r, "loss", &m.loss, linkLoss),
		one(r, "rate", &m.rate, linkRate),
	}
}

// An endpointMap is a link's end, which has two forms: "node:interface" and a
// map. In both, external may stand in the place of a node.
type endpointMap struct {
	at        *yaml.Node
	node      val[string]
	iface     val[string]
	addresses []val[netip.Prefix]
}

func (r *reader) endpointMap(n *yaml.Node) endpointMap {
	m := endpointMap{at: n}
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		brief := scalar(r, n, endpoint)
		m.node = val[string]{n, brief.is.Node, brief.ok}
		m.iface = val[string]{at: n}
		if brief.ok {
			name, err := interfaceName(brief.is.Interface)
			if err != nil {
				r.valueError(n, "%v", err)
			}
			m.iface.is, m.iface.ok = name, err == nil
		}
		return m
	}
	r.fields(n, "an endpoint",
		one(r, "node", &m.node, anyText),
		one(r, "interface", &m.iface, interfaceName),
		list(r, "addresses", &m.addresses, func(n *yaml.Node) val[netip.Prefix] { return scalar(r, n, address) }),
	)
	r.required(n, "endpoint", need("node", m.node), need("interface", m.iface))
	return m
}

type workloadMap struct {
	at              *yaml.Node
	name, from, to  val[string]
	operation       val[Operation]
	size, count     val[uint64]
	depth           val[int]
	duration, start val[time.Duration]
	verify          val[bool]
}

func (r *reader) workloadMap(n *yaml.Node) workloadMap {
	m := workloadMap{at: n}
	r.fields(n, "a workload",
		one(r, "name", &m.name, plainName(maxNodeName)),
		one(r, "from", &m.from, anyText),
		one(r, "to", &m.to, anyText),
		one(r, "operation", &m.operation, operation),
		one(r, "size", &m.size, messageSize),
		one(r, "depth", &m.depth, queueDepth),
		one(r, "count", &m.count, messageCount),
		one(r, "duration", &m.duration, runTime),
		one(r, "start", &m.start, instant),
		one(r, "verify", &m.verify, yes),
	)
	r.required(n, "workload", need("name", m.name), need("from", m.from), need("to", m.to),
		need("operation", m.operation), need("size", m.size))
	r.exactlyOne(n, "workload", need("duration", m.duration), need("count", m.count))
	return m
}

type eventMap struct {
	at       *yaml.Node
	instant  val[time.Duration]
	link     val[Endpoint]
	from     val[string]
	set      val[impairment]
	down, up val[bool]
}

func (r *reader) eventMap(n *yaml.Node) eventMap {
	m := eventMap{at: n}
	r.fields(n, "a timeline entry",
		one(r, "at", &m.instant, instant),
		one(r, "link", &m.link, endpoint),
		one(r, "from", &m.from, anyText),
		field{"set", func(n *yaml.Node) {
			m.set.at, m.set.ok = n, true
			r.fields(n, "set", r.impairment(&m.set.is)...)
			if isMap(n) && len(n.Content) == 0 {
				r.errorf(n, "nothing to set, expected delay, jitter, loss or rate")
			}
		}},
		one(r, "down", &m.down, onlyTrue),
		one(r, "up", &m.up, onlyTrue),
	)
	r.required(n, "timeline entry", need("at", m.instant), need("link", m.link))
	r.exactlyOne(n, "timeline entry", need("set", m.set), need("down", m.down), need("up", m.up))
	return m
}

type checkMap struct {
	at       *yaml.Node
	workload val[string]
	bounds   []Bound
}

func (r *reader) checkMap(n *yaml.Node) checkMap {
	m := checkMap{at: n}
	given := false
	metric := func(name Metric, parse func(string) (condition, error)) field {
		return field{string(name), func(n *yaml.Node) {
			given = true
			if c := scalar(r, n, parse); c.ok {
				m.bounds = append(m.bounds, Bound{name, c.is.relation, c.is.value, c.is.text})
			}
		}}
	}
	latency := bound(instant, "<= 50ms")
	r.fields(n, "a check",
		one(r, "workload", &m.workload, anyText),
		metric(Errors, errorBound),
		metric(Throughput, bound(parseRate, ">= 200mbit")),
		metric(LatencyMin, latency),
		metric(LatencyP50, latency),
		metric(LatencyP99, latency),
		metric(LatencyMax, latency),
	)
	r.required(n, "check", need("workload", m.workload))
	if !given && isMap(n) {
		r.errorf(n, "the check has no bound, expected errors, throughput, latency_min, latency_p50, latency_p99 or latency_max")
	}
	return m
}
