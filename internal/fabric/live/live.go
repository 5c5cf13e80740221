// Package live has a lab as those see it who watch it: a map that stays for as long as the topology does, and samples, each of
// which sums up what the lab did since the one before. They come from a lab that goes on, or from the report of a
// run that is over, and look the same.
//
// It is pure: who watches brings observations (report.Observation), which have the time. Package top and package ui show what is
// here. The JSON of the types is what the page reads.
//
// Start reading at Map and Sample; MapOf and Recorder make them of a lab.
package live

// A Map has all that can be seen of a lab but its samples. Samples have nodes and links in its order.
type Map struct {
	Lab      string            `json:"lab"`
	Seed     uint64            `json:"seed"`
	Labels   map[string]string `json:"labels,omitempty"`   // of the lab
	Dilation int               `json:"dilation,omitempty"` // as topology.Topology has it
	Replay   bool              `json:"replay,omitempty"`   // it is a run that is over
	Runs     int               `json:"runs,omitempty"`     // of a replay: how many runs are laid over each other
	// Nodes has externals, which are ends of links outside the lab, last: samples have none of these.
	Nodes  []Node  `json:"nodes"`
	Links  []Link  `json:"links"`
	Flows  []Flow  `json:"flows"`
	Width  float64 `json:"width"` // the nodes lie in 0 to Width and 0 to Height
	Height float64 `json:"height"`
}

// A Node is one of the map.
type Node struct {
	Name  string  `json:"name"`            // of an external: external:INTERFACE, as endpoints have it
	Kind  string  `json:"kind"`            // host, switch, router, external
	Group string  `json:"group,omitempty"` // nodes of one group (the hosts of a rack) may be drawn as one
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
}

// A Link joins two nodes of the map.
type Link struct {
	Endpoints [2]string `json:"endpoints"` // node:interface
	Nodes     [2]int    `json:"nodes"`     // indices
}

// A Flow joins a workload's client to its server.
type Flow struct {
	Workload string `json:"workload"`
	From     int    `json:"from"` // node
	To       int    `json:"to"`
	Hops     []Hop  `json:"hops"` // the directions of links that its packets take, in their order; empty: none, or not known
	// Shared: several paths are equally near, among which queue pairs part by a hash of the kernel. Hops are of one of them.
	Shared bool `json:"shared,omitempty"`
}

// A Hop is a direction of a link: what endpoint End of it sends.
type Hop struct {
	Link int `json:"link"`
	End  int `json:"end"`
}

// A Sample sums up a lab over some time. Rates are per second of that time.
type Sample struct {
	At        float64          `json:"at"`   // seconds of the fabric's time since the lab was ready, or the run began: the end of its time
	Over      float64          `json:"over"` // seconds of the fabric's time; 0: it is the first, and has no rates
	State     string           `json:"state"`
	Nodes     []NodeSample     `json:"nodes"`
	Links     []LinkSample     `json:"links"`
	Workloads []WorkloadSample `json:"workloads"`
}

// A NodeSample is of a node.
type NodeSample struct {
	State   string  `json:"state"`            // as report.NodeState has it
	Health  string  `json:"health,omitempty"` // as report.Health has it
	Out     float64 `json:"out,omitempty"`    // packets of RDMA, bits per second from the Ethernet header to the ICRC
	In      float64 `json:"in,omitempty"`
	Packets float64 `json:"packets,omitempty"` // that its adapter sent and took, per second
	Resent  float64 `json:"resent,omitempty"`  // packets, per second
	Errors  float64 `json:"errors,omitempty"`  // completion queues and connections that failed, per second
	CNPs    float64 `json:"cnps,omitempty"`    // congestion notifications that its adapter was sent, per second
	Paused  float64 `json:"paused,omitempty"`  // share of the time that PFC held its packets back, summed over priorities and ports
	QPs     int     `json:"qps,omitempty"`
	Conns   int     `json:"conns,omitempty"` // active connections
	// Pairs are queue pairs that are connected, of the node's workloads; not all of very many.
	Pairs []PairSample `json:"pairs,omitempty"`
}

// A PairSample is of a queue pair.
type PairSample struct {
	QP     uint32  `json:"qp"`
	Peer   string  `json:"peer,omitempty"`   // a node, or an address that none has
	Rate   float64 `json:"rate,omitempty"`   // bits per second that congestion control lets it send, at the end of this time; 0: any
	Target float64 `json:"target,omitempty"` // that the rate recovers to
	Window float64 `json:"window,omitempty"` // bytes that may be in flight; 0: any number
	CNPs   float64 `json:"cnps,omitempty"`   // that it was sent, per second
	Resent float64 `json:"resent,omitempty"` // packets, per second
}

// A LinkSample is of a link.
type LinkSample struct {
	Up   bool               `json:"up"`
	Ends [2]DirectionSample `json:"ends"` // what each endpoint sends
}

// A DirectionSample is of what one endpoint of a link sends.
type DirectionSample struct {
	Rate    float64  `json:"rate,omitempty"`    // bits per second, from the Ethernet header on
	Packets float64  `json:"packets,omitempty"` // per second
	Dropped float64  `json:"dropped,omitempty"` // packets per second, by asked-for loss
	Lost    float64  `json:"lost,omitempty"`    // packets per second, for any other reason
	Marked  float64  `json:"marked,omitempty"`  // packets per second
	Load    *float64 `json:"load,omitempty"`    // Rate as a share of the rate asked for; null without one
	Queue   *float64 `json:"queue,omitempty"`   // bytes: the most that has waited at once since the lab is up, or its counters began anew; null where it is not measured
	Delay   *float64 `json:"delay,omitempty"`   // microseconds, one way: the median of the packets of this time; null without any
	Cut     bool     `json:"cut,omitempty"`     // by a cut, or by a flap that has lost packets in this time
	Set     []string `json:"set,omitempty"`     // the settings in force, as `ndklab link set` takes them
	// Pauses are of the classes that the other endpoint has ever kept this one from sending, by PFC.
	Pauses []PauseSample `json:"pauses,omitempty"`
}

// A PauseSample is of a class at an endpoint.
type PauseSample struct {
	Class int     `json:"class"`
	Share float64 `json:"share"` // of the time, 0 to 1
}

// A WorkloadSample is of the clients of a workload in one node.
type WorkloadSample struct {
	Name     string   `json:"name"`
	Node     int      `json:"node"`
	Rate     float64  `json:"rate,omitempty"`     // payload, bits per second
	Messages float64  `json:"messages,omitempty"` // per second
	Errors   float64  `json:"errors,omitempty"`   // per second
	P50      *float64 `json:"p50,omitempty"`      // microseconds: latency of the messages of this time; null without any
	P99      *float64 `json:"p99,omitempty"`
}

// A Change is a request to the lab that a command of the CLI makes, too. The zero values of fields that an Act
// does not have are left out.
type Change struct {
	// Act is one of set, reset, cut, heal (of a link), partition, unpartition (of the lab), pause, resume,
	// stop, start, restart, kill (of a node), perf (a workload between two nodes).
	Act      string     `json:"act"`
	Endpoint string     `json:"endpoint,omitempty"` // of the link
	From     string     `json:"from,omitempty"`     // the node whose outgoing direction alone changes; "" is both
	Settings []string   `json:"settings,omitempty"` // "delay=1ms": as `ndklab link set` takes them; of perf: "test=write-bw", "size=64KiB": its flags
	Node     string     `json:"node,omitempty"`     // of perf: the one that connects and posts
	Sets     [][]string `json:"sets,omitempty"`     // of nodes, of partition
	To       string     `json:"to,omitempty"`       // of perf: the other node
}
