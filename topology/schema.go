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

// This file is one type and one table of keys for the file, its topology, nodes and
// links; the adapter block, which has many keys, is in adapter.go. What depends on more
// than one value (precedence, references, addresses) is in parse.go and the files it
// leads to.

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

var labTable = sync.OnceValue(func() *keyTable[labMap] {
	return &keyTable[labMap]{
		what: "a lab", noun: "lab",
		also: func(_ *keyTable[labMap], s schema) { s["type"], s["required"] = "object", []string{"topology"} },
		keys: []key[labMap]{
			one("name", nameForm(MaxLabName), func(m *labMap) *val[string] { return &m.name }, "the lab's name, up to 40 characters; absent: the file's name without its endings"),
			one("seed", count[uint64](0, math.MaxUint64), func(m *labMap) *val[uint64] { return &m.seed }, "a whole number, of every random decision; absent: one is drawn and printed"),
			into("labels", labelsForm, func(m *labMap) *map[string]string { return &m.labels }, "a map of names to values, such as `{team: storage, ci: \"42\"}`, by which `ndklab ls` and `ndklab down` select labs with `--label`. `--label` of `up` and `run` adds others; `apply` adds and changes labels, and takes none away"),
			into("topology", topologyForm, func(m *labMap) *topologyMap { return &m.topology }, "[nodes and links](#topology)"),
			into("workloads", listOf(workloadForm), func(m *labMap) *[]workloadMap { return &m.workloads }, "[traffic](#workloads) between hosts"),
			into("timeline", listOf(eventForm), func(m *labMap) *[]eventMap { return &m.timeline }, "[what changes while the lab runs](#timeline)"),
			into("chaos", listOf(chaosForm), func(m *labMap) *[]chaosMap { return &m.chaos }, "[what changes at random](#chaos)"),
			into("checks", listOf(checkForm), func(m *labMap) *[]checkMap { return &m.checks }, "[what has to hold](#checks)"),
			into("baseline", baselineForm, func(m *labMap) **baselineMap { return &m.baseline }, "[an earlier run](#baseline) that this one is compared with"),
			into("capture", listOf(captureForm), func(m *labMap) *[]captureMap { return &m.captures }, "[packets to be recorded](#captures)"),
		},
	}
})

func (r *reader) labMap(n *yaml.Node) labMap {
	m := labMap{at: n}
	if isMap(n) {
		m.topology.at = n // until the key topology has a place of its own
	}
	labTable().read(r, n, &m)
	return m
}

type topologyMap struct {
	at       *yaml.Node // where nodes are missed, if they are; nil if something else is wrong there
	defaults defaultsMap
	kinds    []named[nodeMap]
	groups   []named[nodeMap]
	nodes    []named[nodeMap]
	links    []linkMap
}

var topologyTable = sync.OnceValue(func() *keyTable[topologyMap] {
	nodes := readBy("nodes", nodesSchema, func(r *reader, n *yaml.Node, m *topologyMap) {
		m.at, m.nodes = n, namedOf(nodeForm(nodeTable)).of(r, n).is
	}, "the nodes by name, or several by a range such as `h[1-64]`: a map of each node's keys, where `a:` with nothing is a host with the defaults. A pattern such as `leaf*` says something of nodes that others declare")
	return &keyTable[topologyMap]{
		what: "topology", noun: "topology", def: "topology",
		also: func(_ *keyTable[topologyMap], s schema) { // has nodes, one at least, where fabric does not stand for them
			s["type"], s["if"] = "object", schema{"required": []string{"fabric"}}
			s["else"] = schema{"required": []string{"nodes"}, "properties": schema{"nodes": schema{"type": "object", "minProperties": 1}}}
		},
		keys: []key[topologyMap]{
			readBy("fabric", func() schema { return reference("fabric") }, func(*reader, *yaml.Node, *topologyMap) {}, // which expander.withFabric has replaced
				"nodes and links of a [usual shape](#fabrics), beside which `nodes` and `links` add others"),
			into("defaults", defaultsForm, func(m *topologyMap) *defaultsMap { return &m.defaults }, "what holds for all, unless something nearer says otherwise: `node`, `link`, `adapter`"),
			into("kinds", namedOf(nodeForm(kindTable)), func(m *topologyMap) *[]named[nodeMap] { return &m.kinds }, "a map of names to what the nodes of each kind have in common; also of the kinds `host`, `switch` and `router`"),
			into("groups", namedOf(nodeForm(groupTable)), func(m *topologyMap) *[]named[nodeMap] { return &m.groups }, "a map of names to what the nodes of each group have in common"),
			nodes,
			into("links", listOf(linkForm), func(m *topologyMap) *[]linkMap { return &m.links }, "a list of links, each between two nodes, or a node and what is outside"),
		},
	}
})

var topologyForm = form[topologyMap]{
	schema: func() schema { return topologyTable().reference() },
	read: func(r *reader, n *yaml.Node) topologyMap {
		m := topologyMap{at: n}
		topologyTable().read(r, n, &m)
		if !isMap(m.at) {
			m.at = nil
		}
		return m
	},
}

// Defaults apply to every node and link. The adapter has a place of its own
// beside node, not inside it.
type defaultsMap struct {
	nodeMap
	link linkSettings
}

var defaultsTable = sync.OnceValue(func() *keyTable[defaultsMap] {
	node := func(r *reader, n *yaml.Node, m *defaultsMap) { nodeDefaultsTable().read(r, n, &m.nodeMap) }
	return &keyTable[defaultsMap]{
		what: "defaults", noun: "defaults", def: "defaults",
		keys: []key[defaultsMap]{
			readBy("node", nodeDefaultsTable().schema, node, "what holds for nodes"),
			into("link", linksForm(linkDefaultsTable), func(m *defaultsMap) *linkSettings { return &m.link }, "what holds for links"),
			into("adapter", adapterForm, func(m *defaultsMap) *adapter { return &m.limits.adapter }, "what holds for the adapters of hosts"),
		},
	}
})

var nodeDefaultsTable = nodeTableOf("the node defaults", "", "adapter", "stp", "port")

var linkDefaultsTable = linkSettingsTable("the link defaults")

var defaultsForm = mapOf(defaultsTable, func(_ *reader, _ *yaml.Node, m *defaultsMap) defaultsMap { return *m })

// A nodeMap is a node, or what nodes of a kind or group have in common.
type nodeMap struct {
	kind, group val[string] // of a kind: the built-in one that it is
	limits      limits
	setup       setup
}

// The limits are the keys beside kind and group that are not of the setup.
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

// nodeKeys are the keys of a node but for those of its setup.
func nodeKeys() []key[nodeMap] {
	return []key[nodeMap]{
		one("kind", anyText, func(m *nodeMap) *val[string] { return &m.kind }, "`host` (the default: an emulated machine with an RDMA adapter), `switch` (Ethernet), `router` (IP), or one of `kinds`, which are hosts unless their own `kind` says otherwise"),
		one("group", anyText, func(m *nodeMap) *val[string] { return &m.group }, "one of `groups`"),
		one("cpu", cores, func(m *nodeMap) *val[float64] { return &m.limits.cpu }, "cores that a host may use, $range, such as `0.5`; absent: no limit"),
		one("memory", memory, func(m *nodeMap) *val[uint64] { return &m.limits.memory }, "that a host may use, swap and the page cache of its files included, $range; absent: no limit"),
		one("pids", pids, func(m *nodeMap) *val[uint64] { return &m.limits.pids }, "processes and threads that a host may have at once, $range, some twenty of them ndklab's own; absent: no limit"),
		into("adapter", adapterForm, func(m *nodeMap) *adapter { return &m.limits.adapter }, "the host's RDMA adapter: a map of [its keys](#the-adapter)"),
		one("restart", restart, func(m *nodeMap) *val[bool] { return &m.limits.restart }, "of a host or router whose agent has died, by `ndklab kill` or a crash: `never` (the default) leaves it down, `always` starts it again, after 100 ms and, if it soon dies again, after twice as long each time, up to 1 min. One that was stopped by `ndklab stop` stays down"),
		one("verbs", noVerbs, func(m *nodeMap) *val[bool] { return &m.limits.noVerbs }, "`off`: programs in the host that use libibverbs or librdmacm find what the machine itself has, not the host's adapter; absent: `on`"),
		one("stp", yes, func(m *nodeMap) *val[bool] { return &m.limits.stp }, "`true`: switches whose links make a ring agree on a tree by the spanning tree protocol; without, a ring is an error, and so are two links between the same switches"),
		into("port", portForm, func(m *nodeMap) *[]portMap { return &m.limits.ports }, "of a switch or router: `rate`, `burst`, `queue` and `ecn` of each of its ports, that is of the packets that it sends. A link's own keys come before these, these before `defaults: link:`"),
	}
}

func setupOf(m *nodeMap) *setup { return &m.setup }

var (
	nodeTable  = nodeTableOf("a node", "node")
	kindTable  = nodeTableOf("a kind", "kind")
	groupTable = nodeTableOf("a group", "group", "group")
)

// nodeTableOf is the keys of a node but some. Def is the name of the schema, if it has one.
func nodeTableOf(what, def string, less ...string) func() *keyTable[nodeMap] {
	return sync.OnceValue(func() *keyTable[nodeMap] {
		return &keyTable[nodeMap]{what: what, noun: strings.TrimPrefix(strings.TrimPrefix(what, "a "), "the "), def: def, keys: keysWithout(slices.Concat(nodeKeys(), shared(setupKeys(), setupOf)), less...)}
	})
}

func nodeForm(t func() *keyTable[nodeMap]) form[nodeMap] {
	return mapOf(t, func(_ *reader, _ *yaml.Node, m *nodeMap) nodeMap { return *m })
}

// A portMap is what all ports of a switch or router have in common: how the packets
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

var portForm = mapOf(portTable, func(_ *reader, n *yaml.Node, m *portMap) []portMap { return []portMap{{n, m.impairment}} })

// The linkSettings are the keys that links and link defaults share.
type linkSettings struct {
	impairment   impairment
	mtu          val[int]
	engine       val[Engine]
	offload      val[bool]
	tolerance    toleranceMap
	allowOverrun val[bool]
}

// linkKeys are the keys of linkSettings beside those of impairments.
func linkKeys() []key[linkSettings] {
	return []key[linkSettings]{
		one("mtu", mtu, func(m *linkSettings) *val[int] { return &m.mtu }, "bytes of IP packet, $range; 4200 carries RoCE packets of 4096 bytes").orElse("4200"),
		one("engine", fewWords(Linkem, Netem), func(m *linkSettings) *val[Engine] { return &m.engine }, "[which](#engines) does the impairments: `linkem`, ours, in userspace, all of them, and measures it; `netem`, the kernel's, some of them").orElse("`linkem`"),
		one("offload", choice("off", "on"), func(m *linkSettings) *val[bool] { return &m.offload }, "`off`: every wire packet leaves its node by itself; `on`: nodes may hand over super-packets, which are decided on packet by packet all the same").orElse("`on`"),
		into("tolerance", toleranceForm, func(m *linkSettings) *toleranceMap { return &m.tolerance }, "[how far](#tolerance) the link may be from what was asked"),
		one("overrun", choice("fail", "allow"), func(m *linkSettings) *val[bool] { return &m.allowOverrun }, "`fail`: a link beyond its tolerance fails the run; `allow`: it is reported").orElse("`fail`"),
	}
}

// linkSettingKeys are all keys of linkSettings.
func linkSettingKeys(ofLink bool) []key[linkSettings] {
	return append(shared(impaired(ofLink), func(m *linkSettings) *impairment { return &m.impairment }), linkKeys()...)
}

// linkSettingsTable is the keys of settings for several links.
func linkSettingsTable(what string) func() *keyTable[linkSettings] {
	return sync.OnceValue(func() *keyTable[linkSettings] {
		return &keyTable[linkSettings]{what: what, noun: strings.TrimPrefix(what, "the "), keys: linkSettingKeys(false)}
	})
}

// linksForm is settings for several links.
func linksForm(t func() *keyTable[linkSettings]) form[linkSettings] {
	return mapOf(t, func(r *reader, _ *yaml.Node, m *linkSettings) linkSettings {
		r.noSenders(m.impairment)
		return *m
	})
}

type toleranceMap struct {
	delayP10, delay, delayP99 val[time.Duration]
	rate, loss                val[float64]
}

var toleranceTable = sync.OnceValue(func() *keyTable[toleranceMap] {
	d := DefaultTolerance
	return &keyTable[toleranceMap]{
		what: "tolerance", noun: "tolerance", def: "tolerance",
		keys: []key[toleranceMap]{
			one("delay_p10", linkDelay, func(m *toleranceMap) *val[time.Duration] { return &m.delayP10 }, "later than this at most 90 % of the packets may leave").orElse(FormatDuration(d.DelayP10)),
			one("delay", linkDelay, func(m *toleranceMap) *val[time.Duration] { return &m.delay }, "later than this at most 50 %").orElse(FormatDuration(d.Delay)),
			one("delay_p99", linkDelay, func(m *toleranceMap) *val[time.Duration] { return &m.delayP99 }, "later than this at most 1 %").orElse(FormatDuration(d.DelayP99)),
			one("rate", probability, func(m *toleranceMap) *val[float64] { return &m.rate }, "by which the rate may fall short while packets wait").orElse(FormatPercent(d.Rate)),
			one("loss", probability, func(m *toleranceMap) *val[float64] { return &m.loss }, "share of packets that may be lost unasked").orElse(FormatPercent(d.Loss)),
		},
	}
})

var toleranceForm = mapOf(toleranceTable, func(_ *reader, _ *yaml.Node, m *toleranceMap) toleranceMap { return *m })

type linkMap struct {
	linkSettings
	at        *yaml.Node
	endpoints []endpointMap
	down      val[bool]
	reverse   impairment  // of packets sent by the second endpoint
	capture   val[string] // true, false or a path
}

var linkTable = sync.OnceValue(func() *keyTable[linkMap] {
	endpoints := listOf(endpointForm)
	endpoints.schema = func() schema {
		return schema{"type": "array", "items": endpointForm.schema(), "minItems": 2, "maxItems": 2}
	}
	return &keyTable[linkMap]{
		what: "a link", noun: "link", def: "link",
		also: func(_ *keyTable[linkMap], s schema) { s["type"], s["required"] = "object", []string{"endpoints"} },
		keys: append(shared(linkSettingKeys(true), func(m *linkMap) *linkSettings { return &m.linkSettings }),
			into("endpoints", endpoints, func(m *linkMap) *[]endpointMap { return &m.endpoints }, "a list of two: `\"node:interface\"` or the long form. Interfaces of hosts are best called `eth0`, `eth1` ...; `eth*` is the next that is free, and [ranges](#ranges-and-patterns) make several links"),
			readBy("cross", yes.schema, func(r *reader, n *yaml.Node, _ *linkMap) { yes.of(r, n) }, // which expander.link has acted upon
				"`true`: where both ends have ranges, from each node of the first to each of the second").orElse("`false`"),
			one("down", yes, func(m *linkMap) *val[bool] { return &m.down }, "`true`: the link starts without carrier").orElse("`false`"),
			one("capture", linkCapture, func(m *linkMap) *val[string] { return &m.capture }, "`true`: both ends are recorded, in a file named after them; or the file").orElse("`false`"),
			into("reverse", impairmentForm(reverseTable), func(m *linkMap) *impairment { return &m.reverse }, "a map of the keys of [impairments](#impairments): what differs for packets that the second endpoint sends"),
		),
	}
})

var linkForm = mapOf(linkTable, func(_ *reader, n *yaml.Node, m *linkMap) linkMap {
	m.at = n
	return *m
})

// reverseTable is the keys of an impairment that is not of a link itself.
var reverseTable = sync.OnceValue(func() *keyTable[impairment] {
	return &keyTable[impairment]{what: "reverse", noun: "reverse", keys: impaired(false)}
})

func impairmentForm(t func() *keyTable[impairment]) form[impairment] {
	return mapOf(t, func(r *reader, _ *yaml.Node, m *impairment) impairment {
		r.noSenders(*m)
		return *m
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
			one("node", anyText, func(m *endpointMap) *val[string] { return &m.node }, "the node, or `external`: what is outside of the lab"),
			one("interface", single(interfaceName, func() schema {
				return anyOf(matching(interfacePattern).except("^"+reservedInterfaces), matching(interfaceWord), schema{"type": []string{"integer", "boolean"}})
			}), func(m *endpointMap) *val[string] { return &m.iface }, "the interface's name, such as `eth0`"),
			into("addresses", listOf(addresses), func(m *endpointMap) *[]val[netip.Prefix] { return &m.addresses }, "with their prefix lengths").orElse("chosen"),
		},
	}
})

var endpointForm = form[endpointMap]{
	schema: func() schema { return reference("endpoint") },
	read: func(r *reader, n *yaml.Node) endpointMap {
		m := endpointMap{at: n}
		if n.Kind != yaml.ScalarNode || isNull(n) {
			endpointTable().read(r, n, &m)
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
