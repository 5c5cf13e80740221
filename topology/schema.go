package topology

import (
	"math"
	"net/netip"
	"slices"
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
	labels    map[string]string
	topology  topologyMap
	workloads []workloadMap
	timeline  []eventMap
	chaos     []chaosMap
	checks    []checkMap
	baseline  *baselineMap // nil: none
	captures  []captureMap
}

func (r *reader) labMap(n *yaml.Node) labMap {
	m := labMap{at: n}
	if isMap(n) {
		m.topology.at = n // until the key topology has a place of its own
	}
	r.fields(n, "a lab",
		one(r, "name", &m.name, plainName(MaxLabName)),
		one(r, "seed", &m.seed, count[uint64](0, math.MaxUint64)),
		field{"labels", func(n *yaml.Node) { m.labels = r.labels(n) }},
		field{"topology", func(n *yaml.Node) { m.topology = r.topologyMap(n) }},
		list(r, "workloads", &m.workloads, r.workloadMap),
		list(r, "timeline", &m.timeline, r.eventMap),
		list(r, "chaos", &m.chaos, r.chaosMap),
		list(r, "checks", &m.checks, r.checkMap),
		field{"baseline", func(n *yaml.Node) { m.baseline = r.baselineMap(n) }},
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
		field{"fabric", func(*yaml.Node) {}}, // which expander.withFabric has replaced
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
	setup       setup
	link        linkSettings
}

func (r *reader) defaultsMap(n *yaml.Node) defaultsMap {
	var m defaultsMap
	r.fields(n, "defaults",
		field{"node", func(n *yaml.Node) {
			r.fields(n, "the node defaults", append([]field{
				one(r, "kind", &m.kind, anyText),
				one(r, "group", &m.group, anyText),
				one(r, "cpu", &m.limits.cpu, cores),
				one(r, "memory", &m.limits.memory, memory),
				one(r, "pids", &m.limits.pids, pids),
				one(r, "restart", &m.limits.restart, restart),
				one(r, "verbs", &m.limits.noVerbs, noVerbs),
			}, r.setup(&m.setup)...)...)
		}},
		field{"link", func(n *yaml.Node) {
			r.fields(n, "the link defaults", r.linkSettings(&m.link)...)
			r.noSenders(m.link.impairment)
		}},
		field{"adapter", func(n *yaml.Node) { m.limits.adapter = r.adapter(n) }},
	)
	return m
}

type kindMap struct {
	kind, group val[string] // kind is a built-in one
	limits      limits
	setup       setup
}

func (r *reader) kindMap(n *yaml.Node) kindMap {
	var m kindMap
	r.fields(n, "a kind", append(append(r.limits(&m.limits), r.setup(&m.setup)...),
		one(r, "kind", &m.kind, anyText),
		one(r, "group", &m.group, anyText),
	)...)
	return m
}

type groupMap struct {
	kind   val[string]
	limits limits
	setup  setup
}

func (r *reader) groupMap(n *yaml.Node) groupMap {
	var m groupMap
	r.fields(n, "a group", append(append(r.limits(&m.limits), r.setup(&m.setup)...),
		one(r, "kind", &m.kind, anyText),
	)...)
	return m
}

type nodeMap struct {
	kind, group val[string]
	limits      limits
	setup       setup
}

func (r *reader) nodeMap(n *yaml.Node) nodeMap {
	var m nodeMap
	r.fields(n, "a node", append(append(r.limits(&m.limits), r.setup(&m.setup)...),
		one(r, "kind", &m.kind, anyText),
		one(r, "group", &m.group, anyText),
	)...)
	return m
}

// The limits are the keys that nodes, groups and kinds share.
type limits struct {
	cpu     val[float64]
	memory  val[uint64]
	pids    val[uint64]
	adapter adapter
	restart val[bool]
	noVerbs val[bool]
	stp     val[bool]
	ports   []portMap // that of more precedence first
}

func (r *reader) limits(m *limits) []field {
	return []field{
		one(r, "cpu", &m.cpu, cores),
		one(r, "memory", &m.memory, memory),
		one(r, "pids", &m.pids, pids),
		{"adapter", func(n *yaml.Node) { m.adapter = r.adapter(n) }},
		one(r, "restart", &m.restart, restart),
		one(r, "verbs", &m.noVerbs, noVerbs),
		one(r, "stp", &m.stp, yes),
		{"port", func(n *yaml.Node) { m.ports = []portMap{r.portMap(n)} }},
	}
}

// A portMap is what all ports of a switch or router have in common: how the packets
// fare that it sends.
type portMap struct {
	at         *yaml.Node
	impairment impairment
}

// portKeys are the keys of an impairment that a port has.
var portKeys = []string{"rate", "burst", "queue", "ecn"}

func (r *reader) portMap(n *yaml.Node) portMap {
	m := portMap{at: n}
	fields := slices.DeleteFunc(r.impairment(&m.impairment), func(f field) bool { return !slices.Contains(portKeys, f.key) })
	r.fields(n, "a port", fields...)
	return m
}

// The linkSettings are the keys that links and link defaults share.
type linkSettings struct {
	impairment   impairment
	mtu          val[int]
	engine       val[Engine]
	offload      val[bool]
	tolerance    toleranceMap
	allowOverrun val[bool]
}

func (r *reader) linkSettings(m *linkSettings) []field {
	return append(r.impairment(&m.impairment),
		one(r, "mtu", &m.mtu, mtu),
		one(r, "engine", &m.engine, engine),
		one(r, "offload", &m.offload, choice("off", "on")),
		field{"tolerance", func(n *yaml.Node) { m.tolerance = r.toleranceMap(n) }},
		one(r, "overrun", &m.allowOverrun, choice("fail", "allow")),
	)
}

type toleranceMap struct {
	delayP10, delay, delayP99 val[time.Duration]
	rate, loss                val[float64]
}

func (r *reader) toleranceMap(n *yaml.Node) toleranceMap {
	var m toleranceMap
	r.fields(n, "tolerance",
		one(r, "delay_p10", &m.delayP10, linkDelay),
		one(r, "delay", &m.delay, linkDelay),
		one(r, "delay_p99", &m.delayP99, linkDelay),
		one(r, "rate", &m.rate, probability),
		one(r, "loss", &m.loss, probability),
	)
	return m
}

type linkMap struct {
	linkSettings
	at        *yaml.Node
	endpoints []endpointMap
	down      val[bool]
	reverse   impairment  // of packets sent by the second endpoint
	capture   val[string] // true, false or a path
}

func (r *reader) linkMap(n *yaml.Node) linkMap {
	m := linkMap{at: n}
	r.fields(n, "a link", append(r.linkSettings(&m.linkSettings),
		list(r, "endpoints", &m.endpoints, r.endpointMap),
		one(r, "cross", new(val[bool]), yes), // which expander.link has acted upon
		one(r, "down", &m.down, yes),
		one(r, "capture", &m.capture, linkCapture),
		field{"reverse", func(n *yaml.Node) {
			r.fields(n, "reverse", r.impairment(&m.reverse)...)
			r.noSenders(m.reverse)
		}},
	)...)
	return m
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
