package report

import (
	"io"
	"strconv"
)

// Connections are what the adapters of a lab's nodes have of connections,
// listeners and shared endpoints.
type Connections struct {
	Lab         string       `json:"lab"`
	Nodes       []NodeState  `json:"nodes"` // that were asked
	Connections []Connection `json:"connections"`
}

// A Connection is an entry in the list of an adapter, as netstat -xan has it on
// Windows and then some.
type Connection struct {
	Node      string `json:"node"`
	Mode      string `json:"mode"`      // Kernel: the node's workloads; User: another process in the node
	Interface string `json:"interface"` // of the local address
	IfIndex   int    `json:"if_index"`  // of that, in the node
	Type      string `json:"type"`      // Connection, Listener or SharedEndpoint
	Local     string `json:"local"`     // address and port
	Remote    string `json:"remote,omitempty"`
	PID       int    `json:"pid"`             // of the process, as the host sees it; 0 in mode Kernel
	State     string `json:"state,omitempty"` // of a connection
	QPN       uint32 `json:"qpn,omitempty"`
	RemoteQPN uint32 `json:"remote_qpn,omitempty"`
}

// WriteConnections writes connections for people.
func WriteConnections(w io.Writer, c *Connections) error {
	p := newPage(w)
	if len(c.Connections) == 0 {
		p.section()
		p.line("no connections, listeners or shared endpoints")
	} else {
		p.connections(c.Connections)
	}
	p.states(c.Nodes)
	return p.flush()
}

func (p *page) connections(list []Connection) {
	t := table{columns: []column{
		{title: "node", wraps: true}, {title: "mode"}, {title: "If\nIndex", right: true}, {title: "type"},
		{title: "local address", wraps: true}, {title: "foreign address", wraps: true}, {title: "PID", right: true},
		{title: "state"}, {title: "QPN", right: true}, {title: "foreign\nQPN", right: true},
	}}
	for _, c := range list {
		remote, state := c.Remote, c.State
		if remote == "" {
			remote, state = "NA", "-"
		}
		t.add(c.Node, c.Mode, strconv.Itoa(c.IfIndex), c.Type, c.Local, remote, strconv.Itoa(c.PID), state, qpn(c.QPN), qpn(c.RemoteQPN))
	}
	p.table(&t)
}

// qpn is the number of a queue pair, "-" if there is none.
func qpn(number uint32) string {
	if number == 0 {
		return "-"
	}
	return "0x" + strconv.FormatUint(uint64(number), 16)
}
