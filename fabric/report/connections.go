package report

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
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
	Type      string `json:"type"`      // Connection, Listener, SharedEndpoint or QueuePair
	Local     string `json:"local"`     // address and port; "" of a queue pair that is not connected
	Remote    string `json:"remote,omitempty"`
	PID       int    `json:"pid"`                 // of the process, as the host sees it; 0 in mode Kernel
	Process   string `json:"process,omitempty"`   // its name
	State     string `json:"state,omitempty"`     // of a connection or queue pair
	Transport string `json:"transport,omitempty"` // of a queue pair of verbs: RC, UC or UD
	QPN       uint32 `json:"qpn,omitempty"`
	RemoteQPN uint32 `json:"remote_qpn,omitempty"`
	// Sent and Received are packets, of a queue pair of verbs.
	Sent     uint64 `json:"packets_sent,omitempty"`
	Received uint64 `json:"packets_received,omitempty"`
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
	verbs := slices.ContainsFunc(list, func(c Connection) bool { return c.Transport != "" })
	if verbs {
		t.columns = append(t.columns, column{title: "packets\nsent\nreceived", right: true})
	}
	for i := range list {
		c := &list[i]
		cells := []string{
			c.Node, c.Mode, strconv.Itoa(c.IfIndex), below(c.Type, c.Transport), cmp.Or(c.Local, "NA"), cmp.Or(c.Remote, "NA"),
			below(strconv.Itoa(c.PID), c.Process), cmp.Or(c.State, "-"), qpn(c.QPN), qpn(c.RemoteQPN),
		}
		switch {
		case verbs && c.Transport != "":
			cells = append(cells, below(count(c.Sent), count(c.Received)))
		case verbs:
			cells = append(cells, "-")
		}
		t.add(cells...)
	}
	p.table(&t)
}

// below is a cell with a second line, if there is one.
func below(first, second string) string { return strings.TrimSuffix(first+"\n"+second, "\n") }

// qpn is the number of a queue pair, "-" if there is none.
func qpn(number uint32) string {
	if number == 0 {
		return "-"
	}
	return "0x" + strconv.FormatUint(uint64(number), 16)
}
