package topology

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the tables of keys for the file, its topology, nodes and links; that of the
// adapter block, which has many keys, is in adapter.go. Rules that depend on more than one
// value (precedence, references, addresses) are in parse.go and the files it leads to.

// A labMap is the whole file.
type labMap struct {
	Topology           // with what the file says itself
	dilation  val[int] // 0: the file does not say it
	topology  topologyMap
	workloads []*mapping[workloadMap]
	timeline  []*mapping[eventMap]
	chaos     []*mapping[chaosMap]
	checks    []*mapping[Check]
	baseline  *mapping[baselineMap] // nil: none
	captures  []*mapping[captureMap]
}

var labTable = sync.OnceValue(func() *keyTable[labMap] {
	return &keyTable[labMap]{
		what: "a lab", noun: "lab",
		also: func(_ *keyTable[labMap], s schema) { s["type"], s["required"] = "object", []string{"topology"} },
		keys: []key[labMap]{
			one("name", nameForm(MaxLabName), func(m *labMap) *string { return &m.Name }, "the lab's name, up to 40 characters; absent: the file's name without its endings"),
			one("seed", count[uint64](0, math.MaxUint64), func(m *labMap) *uint64 { return &m.Seed }, "a whole number, of every random decision; absent: one is drawn and printed"),
			one("dilation", placed(count[int](1, MaxDilation)), func(m *labMap) *val[int] { return &m.dilation }, "a whole number, 1 to 1000: [how many times slower](#dilation) than the file says a lab is. A simulation ignores it").orElse("1"),
			one("labels", labelsForm, func(m *labMap) *map[string]string { return &m.Labels }, "a map of names to values, such as `{team: storage, ci: \"42\"}`, by which `ndklab ls` and `ndklab down` select labs with `--label`. `--label` of `up` and `run` adds others; `apply` adds and changes labels, and takes none away"),
			one("hosts", hostsForm(), func(m *labMap) *OnLoss { return &m.OnLoss }, "what holds for a lab [over several hosts](#over-several-hosts)"),
			one("topology", topologyForm, func(m *labMap) *topologyMap { return &m.topology }, "[nodes and links](#topology)"),
			one("workloads", listOf(workloadForm), func(m *labMap) *[]*mapping[workloadMap] { return &m.workloads }, "[traffic](#workloads) between hosts"),
			one("timeline", listOf(eventForm), func(m *labMap) *[]*mapping[eventMap] { return &m.timeline }, "[what changes while the lab runs](#timeline)"),
			one("chaos", listOf(chaosForm), func(m *labMap) *[]*mapping[chaosMap] { return &m.chaos }, "[what changes at random](#chaos)"),
			one("checks", listOf(checkForm), func(m *labMap) *[]*mapping[Check] { return &m.checks }, "[what has to hold](#checks)"),
			one("baseline", mapOf(baselineTable, withPlaces), func(m *labMap) **mapping[baselineMap] { return &m.baseline }, "[an earlier run](#baseline) that this one is compared with"),
			one("series", seriesForm, func(m *labMap) **Series { return &m.Series }, "$range: how often [a run takes down](reports.md#over-time) queues, pauses, how queue pairs send, and what links lose. A run that has more than 4096 such times takes them down less often").orElse("never"),
			one("capture", listOf(mapOf(captureTable, withPlaces)), func(m *labMap) *[]*mapping[captureMap] { return &m.captures }, "[packets to be recorded](#captures)"),
		},
	}
})

type topologyMap struct {
	at       *yaml.Node // where nodes are missed, if they are; nil if something else is wrong there
	defaults defaultsMap
	kinds    []named[*mapping[nodeMap]]
	groups   []named[*mapping[nodeMap]]
	nodes    []named[*mapping[nodeMap]]
	links    []*mapping[linkMap]

	convergence val[time.Duration] // 0: never
}

var topologyTable = sync.OnceValue(func() *keyTable[topologyMap] {
	of := func(t func() *keyTable[nodeMap]) form[[]named[*mapping[nodeMap]]] {
		return namedOf(mapOf(t, withPlaces))
	}
	nodes := readBy("nodes", nodesSchema, func(r *reader, n *yaml.Node) func(*topologyMap) {
		nodes := of(nodeTable).of(r, n).is
		return func(m *topologyMap) { m.at, m.nodes = n, nodes }
	}, "the nodes by name, or several by a range such as `h[1-64]`: a map of each node's keys, where `a:` with nothing is a host with the defaults. A pattern such as `leaf*` says something of nodes that others declare")
	return &keyTable[topologyMap]{
		what: "topology", noun: "topology", def: "topology",
		also: func(_ *keyTable[topologyMap], s schema) { // has nodes, one at least, where fabric does not stand for them
			s["type"], s["if"] = "object", schema{"required": []string{"fabric"}}
			s["else"] = schema{"required": []string{"nodes"}, "properties": schema{"nodes": schema{"type": "object", "minProperties": 1}}}
		},
		keys: []key[topologyMap]{
			readBy("fabric", func() schema { return reference("fabric") }, func(*reader, *yaml.Node) func(*topologyMap) { return func(*topologyMap) {} }, // which expander.withFabric has replaced
				"nodes and links of a [usual shape](#fabrics), beside which `nodes` and `links` add others"),
			one("defaults", mapOf(defaultsTable, itself), func(m *topologyMap) *defaultsMap { return &m.defaults }, "what holds for all, unless something nearer says otherwise: `node`, `link`, `adapter`"),
			one("kinds", of(kindTable), func(m *topologyMap) *[]named[*mapping[nodeMap]] { return &m.kinds }, "a map of names to what the nodes of each kind have in common; also of the kinds `host`, `switch` and `router`"),
			one("groups", of(groupTable), func(m *topologyMap) *[]named[*mapping[nodeMap]] { return &m.groups }, "a map of names to what the nodes of each group have in common"),
			nodes,
			one("links", listOf(linkForm), func(m *topologyMap) *[]*mapping[linkMap] { return &m.links }, "a list of links, each between two nodes, or a node and what is outside"),
			one("convergence", convergenceForm, func(m *topologyMap) *val[time.Duration] { return &m.convergence },
				"how long after the last link went down or came up [routers find other paths](#when-links-go-down), $range, or `never`").orElse("`never`"),
		},
	}
})

var topologyForm = mapOf(topologyTable, func(m *mapping[topologyMap]) topologyMap {
	if m.is.at == nil {
		m.is.at = m.at
	}
	if !isMap(m.is.at) {
		m.is.at = nil
	}
	return m.is
})

// Defaults apply to every node and link. The adapter has a place of its own
// beside node, not inside it.
type defaultsMap struct {
	node    *mapping[nodeMap]
	link    *mapping[linkMap]
	adapter *mapping[Adapter]
}

var defaultsTable = sync.OnceValue(func() *keyTable[defaultsMap] {
	return &keyTable[defaultsMap]{
		what: "defaults", noun: "defaults", def: "defaults",
		keys: []key[defaultsMap]{
			one("node", mapOf(nodeDefaultsTable, withPlaces), func(m *defaultsMap) **mapping[nodeMap] { return &m.node }, "what holds for nodes"),
			one("link", linksForm(linkDefaultsTable), func(m *defaultsMap) **mapping[linkMap] { return &m.link }, "what holds for links"),
			one("adapter", adapterForm, func(m *defaultsMap) **mapping[Adapter] { return &m.adapter }, "what holds for the adapters of hosts"),
		},
	}
})

var nodeDefaultsTable = nodeTableOf("the node defaults", "", "together", "adapter", "stp", "port", "buffer", "priorities", "watchdog")

var linkDefaultsTable = linksTable("the link defaults")

// A nodeMap is a node, or what nodes of a kind or group have in common. Several maps about
// a node come together in one, that of the most precedence last.
type nodeMap struct {
	Node
	adapter layers[Adapter] // its blocks
	ports   []portMap       // that of most precedence first
	setupMap
}

// nodeKeys are the keys that are not of the setup.
func nodeKeys() []key[nodeMap] {
	return []key[nodeMap]{
		asking[nodeMap]("kind", anyText, "`host` (the default: an emulated machine with an RDMA adapter), `switch` (Ethernet), `router` (IP), or one of `kinds`, which are hosts unless their own `kind` says otherwise"),
		asking[nodeMap]("group", anyText, "one of `groups`"),
		asking[nodeMap]("host", hostName, "of a lab [over several hosts](#over-several-hosts): the one that has the node, by its name or its number from 1; absent: any"),
		asking[nodeMap]("together", yes, "of a lab [over several hosts](#over-several-hosts): `true`: the same host has all nodes of the group").orElse("`false`"),
		one("cpu", cores, func(m *nodeMap) *float64 { return &m.CPU }, "cores that a host may use, $range, such as `0.5`; absent: no limit"),
		one("memory", memory, func(m *nodeMap) *uint64 { return &m.Memory }, "that a host may use, swap and the page cache of its files included, $range; absent: no limit"),
		one("pids", pids, func(m *nodeMap) *uint64 { return &m.PIDs }, "processes and threads that a host may have at once, $range, some twenty of them ndklab's own; absent: no limit"),
		readBy("adapter", adapterForm.schema, func(r *reader, n *yaml.Node) func(*nodeMap) {
			p := adapterForm.of(r, n).is
			return func(m *nodeMap) { m.adapter = append(layers[Adapter]{p}, m.adapter...) }
		}, "the host's RDMA adapter: a map of [its keys](#the-adapter)"),
		one("restart", restart, func(m *nodeMap) *bool { return &m.Restart }, "of a host or router whose agent has died, by `ndklab kill` or a crash: `never` (the default) leaves it down, `always` starts it again, after 100 ms and, if it soon dies again, after twice as long each time, up to 1 min. One that was stopped by `ndklab stop` stays down"),
		one("verbs", noVerbs, func(m *nodeMap) *bool { return &m.NoVerbs }, "`off`: programs in the host that use libibverbs or librdmacm find what the machine itself has, not the host's adapter; absent: `on`"),
		one("stp", yes, func(m *nodeMap) *bool { return &m.SpanningTree }, "`true`: switches whose links make a ring agree on a tree by the spanning tree protocol; without, a ring is an error, and so are two links between the same switches"),
		readBy("port", portForm.schema, func(r *reader, n *yaml.Node) func(*nodeMap) {
			p := portForm.of(r, n).is
			return func(m *nodeMap) { m.ports = append([]portMap{p}, m.ports...) }
		}, "of a switch or router: `rate`, `burst`, `queue` and `ecn` of each of its ports, that is of the packets that it sends. A link's own keys come before these, these before `defaults: link:`"),
	}
}

var (
	nodeTable  = nodeTableOf("a node", "node", "together")
	kindTable  = nodeTableOf("a kind", "kind", "together")
	groupTable = nodeTableOf("a group", "group", "group")
)

// nodeTableOf is the keys of a node but some. Def is the name of the schema, if it has one.
func nodeTableOf(what, def string, less ...string) func() *keyTable[nodeMap] {
	return sync.OnceValue(func() *keyTable[nodeMap] {
		return &keyTable[nodeMap]{what: what, noun: strings.TrimPrefix(strings.TrimPrefix(what, "a "), "the "), def: def, keys: keysWithout(slices.Concat(nodeKeys(), bufferKeys(), setupKeys()), less...)}
	})
}

// A portMap has what all ports of a switch or router have in common: how the packets
// fare that it sends.
type portMap struct {
	at         *yaml.Node
	impairment impairment
}

var portTable = sync.OnceValue(func() *keyTable[portMap] {
	var of []key[impairment]
	for _, k := range impairmentKeys() {
		if k.port {
			of = append(of, k.key)
		}
	}
	return &keyTable[portMap]{what: "a port", noun: "port", keys: shared(of, func(m *portMap) *impairment { return &m.impairment })}
})

var portForm = mapOf(portTable, func(m *mapping[portMap]) portMap { return portMap{m.at, m.is.impairment} })

// A linkMap is a link, or what links have in common.
type linkMap struct {
	Link
	endpoints  []endpointMap
	impairment impairment
	reverse    impairment // of packets sent by the second endpoint
	capture    string     // true, false or a path
}

// linkSettingKeys are the keys that links and settings for several links share.
func linkSettingKeys(ofLink bool) []key[linkMap] {
	return append(shared(impaired(ofLink), func(m *linkMap) *impairment { return &m.impairment }),
		one("mtu", mtu, func(m *linkMap) *int { return &m.MTU }, "bytes of IP packet, $range; 4200 carries RoCE packets of 4096 bytes").orElse("4200"),
		one("engine", fewWords(Linkem, Netem), func(m *linkMap) *Engine { return &m.Engine }, "[which](#engines) does the impairments: `linkem`, ours, in userspace, all of them, and measures it; `netem`, the kernel's, some of them").orElse("`linkem`"),
		one("offload", choice("off", "on"), func(m *linkMap) *bool { return &m.Offload }, "`off`: every wire packet leaves its node by itself; `on`: nodes may hand over super-packets, which are decided on packet by packet all the same").orElse("`on`"),
		block("tolerance", mapOf(toleranceTable, withPlaces), func(m *linkMap) *Tolerance { return &m.Tolerance }, "[how far](#tolerance) the link may be from what was asked"),
		one("overrun", choice("fail", "allow"), func(m *linkMap) *bool { return &m.AllowOverrun }, "`fail`: a link beyond its tolerance fails the run; `allow`: it is reported").orElse("`fail`"),
	)
}

// linksTable is the keys of settings for several links.
func linksTable(what string) func() *keyTable[linkMap] {
	return sync.OnceValue(func() *keyTable[linkMap] {
		return &keyTable[linkMap]{what: what, noun: strings.TrimPrefix(what, "the "), keys: linkSettingKeys(false)}
	})
}

// linksForm is settings for several links.
func linksForm(t func() *keyTable[linkMap]) form[*mapping[linkMap]] {
	return mapOf(t, func(m *mapping[linkMap]) *mapping[linkMap] {
		noSenders(m.reader, m.is.impairment)
		return m
	})
}

var toleranceTable = sync.OnceValue(func() *keyTable[Tolerance] {
	d := DefaultTolerance
	return &keyTable[Tolerance]{
		what: "tolerance", noun: "tolerance", def: "tolerance",
		keys: []key[Tolerance]{
			one("delay_p10", linkDelay, func(m *Tolerance) *time.Duration { return &m.DelayP10 }, "later than this at most 90 % of the packets may leave").orElse(FormatDuration(d.DelayP10)),
			one("delay", linkDelay, func(m *Tolerance) *time.Duration { return &m.Delay }, "later than this at most 50 %").orElse(FormatDuration(d.Delay)),
			one("delay_p99", linkDelay, func(m *Tolerance) *time.Duration { return &m.DelayP99 }, "later than this at most 1 %").orElse(FormatDuration(d.DelayP99)),
			one("rate", probability, func(m *Tolerance) *float64 { return &m.Rate }, "by which the rate may fall short while packets wait").orElse(FormatPercent(d.Rate)),
			one("loss", probability, func(m *Tolerance) *float64 { return &m.Loss }, "share of packets that may be lost unasked").orElse(FormatPercent(d.Loss)),
		},
	}
})

var linkTable = sync.OnceValue(func() *keyTable[linkMap] {
	endpoints := listOf(endpointForm)
	endpoints.schema = func() schema {
		return schema{"type": "array", "items": endpointForm.schema(), "minItems": 2, "maxItems": 2}
	}
	return &keyTable[linkMap]{
		what: "a link", noun: "link", def: "link",
		also: func(_ *keyTable[linkMap], s schema) { s["type"], s["required"] = "object", []string{"endpoints"} },
		keys: append(linkSettingKeys(true),
			one("endpoints", endpoints, func(m *linkMap) *[]endpointMap { return &m.endpoints }, "a list of two: `\"node:interface\"` or the long form. Interfaces of hosts are best called `eth0`, `eth1` ...; `eth*` is the next that is free, and [ranges](#ranges-and-patterns) make several links"),
			asking[linkMap]("cross", yes, // which expander.link has acted upon
				"`true`: where both ends have ranges, from each node of the first to each of the second").orElse("`false`"),
			one("down", yes, func(m *linkMap) *bool { return &m.Down }, "`true`: the link starts without carrier").orElse("`false`"),
			one("capture", linkCapture, func(m *linkMap) *string { return &m.capture }, "`true`: both ends are recorded, in a file named after them; or the file").orElse("`false`"),
			one("reverse", impairmentForm(reverseTable), func(m *linkMap) *impairment { return &m.reverse }, "a map of the keys of [impairments](#impairments): what differs for packets that the second endpoint sends"),
		),
	}
})

var linkForm = mapOf(linkTable, withPlaces)

// reverseTable is the keys of an impairment that is not of a link itself.
var reverseTable = sync.OnceValue(func() *keyTable[impairment] {
	return &keyTable[impairment]{what: "reverse", noun: "reverse", keys: impaired(false)}
})

func impairmentForm(t func() *keyTable[impairment]) form[impairment] {
	return mapOf(t, func(m *mapping[impairment]) impairment {
		noSenders(m.reader, m.is)
		return m.is
	})
}

// An endpointMap is a link's end, which has two forms: "node:interface" and a
// map. In both, external may stand in the place of a node.
type endpointMap struct {
	at        *yaml.Node
	node      val[string]
	iface     val[string]
	addresses []val[netip.Prefix]
}

var endpointTable = sync.OnceValue(func() *keyTable[endpointMap] {
	addresses := placed(single(address, func() schema { return matching(`[0-9a-fA-F:.]+/[0-9]+`) }))
	return &keyTable[endpointMap]{
		what: "an endpoint", noun: "endpoint", required: []string{"node", "interface"},
		keys: []key[endpointMap]{
			one("node", placed(anyText), func(m *endpointMap) *val[string] { return &m.node }, "the node, or `external`: what is outside of the lab"),
			one("interface", placed(single(interfaceName, func() schema {
				return anyOf(matching(interfacePattern).except("^"+reservedInterfaces), matching(interfaceWord), schema{"type": []string{"integer", "boolean"}})
			})), func(m *endpointMap) *val[string] { return &m.iface }, "the interface's name, such as `eth0`"),
			one("addresses", listOf(addresses), func(m *endpointMap) *[]val[netip.Prefix] { return &m.addresses }, "with their prefix lengths").orElse("chosen"),
		},
	}
})

var endpointForm = form[endpointMap]{
	schema: func() schema { return reference("endpoint") },
	read: func(r *reader, n *yaml.Node) endpointMap {
		m := endpointMap{at: n}
		if n.Kind != yaml.ScalarNode || isNull(n) {
			m = endpointTable().read(r, n).is
			m.at = n
			return m
		}
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
	},
}

func endpointSchema() schema {
	return anyOf(matching("[^:]*:"+interfacePattern).except(":"+reservedInterfaces), matching("[^:]*:"+interfaceWord), endpointTable().schema())
}
