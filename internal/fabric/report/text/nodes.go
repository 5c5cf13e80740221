package text

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// WriteInspection writes the state of a lab that is up for people.
func WriteInspection(w io.Writer, lab, state string, seed uint64, nodes []report.Node, links []report.Link, externals []report.External, detail Detail) error {
	p := newPage(w)
	p.full, p.brief = detail == Full, detail == Brief && rowsOf(nodes, links) > screen
	p.section()
	p.line(fmt.Sprintf("lab %s: %s, seed %d", lab, state, seed))
	writeNodes(p, nodes)
	if !p.brief {
		writeUsage(p, nodes)
	}
	writeLinkTable(p, links)
	writeExternalEnds(p, externals)
	if p.brief {
		p.section()
		p.paragraph("", "some rows are left out: `ndklab inspect -v` prints them, and -o json has them")
	}
	return p.flush()
}

// counterTitle returns the name of a counter of NDIS, broken before its last word to save
// room.
func counterTitle(name string) string {
	if i := strings.LastIndexFunc(name, unicode.IsUpper); i > 0 {
		return name[:i] + "\n" + name[i:]
	}
	return name
}

// counterCell returns the value of a counter of NDIS.
func counterCell(name string, value uint64) string {
	if strings.HasSuffix(name, "Octets") {
		return words.Size(value)
	}
	return words.Count(value)
}

// transportTroubles are the transport's counters that a person wants to see
// when they are not zero, in words.
var transportTroubles = []struct{ name, words string }{
	{"retransmitted", "retransmitted"},
	{"spurious_retransmissions", "of those spurious"},
	{"timeouts", "timeouts"},
	{"naks_sent", "NAKs sent"},
	{"naks_received", "NAKs received"},
	{"rnr_naks_sent", "RNR NAKs sent"},
	{"rnr_naks_received", "RNR NAKs received"},
	{"out_of_sequence", "out of sequence"},
	{"duplicates", "duplicates"},
	{"receive_overflow", "lost to a full receive buffer"},
	{"send_dropped", "refused by the kernel"},
	{"send_too_big", "too big to send"},
	{"icrc_errors", "ICRC errors"},
	{"malformed", "malformed"},
	{"unknown_qp", "to an unknown QP"},
	{"misdirected", "misdirected"},
	{"early_dropped", "early and dropped for want of memory"},
	{"bad_length", "of a wrong length"},
}

func writeNodes(p *page, nodes []report.Node) {
	if len(nodes) == 0 {
		return
	}
	if p.brief && len(nodes) > few {
		all := nodes
		nodes = worstNodes(all)
		p.totals(nodeTotals(all), len(nodes), "with most trouble")
		for i := range nodes {
			p.paragraph(nodes[i].Name+": ", nodeTrouble(&nodes[i]))
		}
		return
	}
	t := table{columns: []column{{title: "node", wraps: true}}}
	names := report.NDISNames()
	for _, name := range names {
		t.columns = append(t.columns, column{title: counterTitle(name), right: true})
	}
	for _, n := range nodes {
		if !hasAdapter(&n) {
			continue // without an adapter nothing is counted
		}
		row := []string{n.Name}
		for _, name := range names {
			cell := "-"
			if value, known := n.Counters[name]; known {
				cell = counterCell(name, value)
			}
			row = append(row, cell)
		}
		t.add(row...)
	}
	p.table(&t)
	p.line("")
	for _, n := range nodes {
		if story := nodeStory(&n); story != "" && n.Kind != string(topology.Switch) {
			p.paragraph(n.Name+": ", story)
		}
	}
	writePorts(p, nodes)
}

// nodeStory returns what there is to say of a node besides its counters.
func nodeStory(n *report.Node) string {
	var parts []string
	if n.Kind == string(topology.Router) {
		parts = append(parts, string(topology.Router))
	}
	parts = append(parts, condition(n)...)
	if n.PID != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", n.PID))
	}
	parts = append(parts, restarts(n)...)
	parts = append(parts, n.Addresses...)
	if sent, ok := n.Transport["packets_sent"]; ok {
		parts = append(parts, words.Count(sent)+" packets sent")
	}
	if received, ok := n.Transport["packets_received"]; ok {
		parts = append(parts, words.Count(received)+" received")
	}
	return strings.Join(append(parts, packetTrouble(n.Transport)...), ", ")
}

// nodeTrouble returns what is wrong with a node, and what went wrong there.
func nodeTrouble(n *report.Node) string {
	parts := append(condition(n), restarts(n)...)
	for _, name := range failureCounters {
		if value := n.Counters[name]; value > 0 {
			parts = append(parts, words.Count(value)+" "+name)
		}
	}
	return strings.Join(append(parts, packetTrouble(n.Transport)...), ", ")
}

// condition returns what is unusual about a node's state.
func condition(n *report.Node) (parts []string) {
	if n.State != "" && n.State != core.NodeIsReady || n.Reason != "" {
		state := n.State
		if n.Reason != "" {
			state += " (" + n.Reason + ")"
		}
		parts = append(parts, state)
	}
	if h := n.Health; h != nil {
		health := h.State
		if h.Reason != "" {
			health += " (" + h.Reason + ")"
		}
		parts = append(parts, health)
	}
	return parts
}

// restarts returns how often a node was started again, if it was.
func restarts(n *report.Node) []string {
	if n.Restarts == 0 {
		return nil
	}
	return []string{fmt.Sprintf("restarts: %d", n.Restarts)}
}

// packetTrouble returns what went wrong with packets, by the transport's counters.
func packetTrouble(counters map[string]uint64) (parts []string) {
	for _, t := range transportTroubles {
		if value := counters[t.name]; value > 0 {
			parts = append(parts, words.Count(value)+" "+t.words)
		}
	}
	return parts
}

// writePorts writes the ports of switches, each with where its link leads.
func writePorts(p *page, nodes []report.Node) {
	t := table{columns: []column{
		{title: "port", wraps: true}, {title: "to", wraps: true}, {title: "state"}, {title: "MACs", right: true},
	}}
	for _, n := range nodes {
		for _, port := range n.Ports {
			t.add(n.Name+":"+port.Name, port.To, port.State, words.Count(uint64(port.MACs)))
		}
	}
	if len(t.rows) > 0 {
		p.table(&t)
	}
	for _, n := range nodes {
		if state := append(condition(&n), restarts(&n)...); n.Kind == string(topology.Switch) && len(state) > 0 {
			p.paragraph(n.Name+": ", strings.Join(state, ", "))
		}
	}
}

// writeUsage writes what nodes with limits have used, next to these.
func writeUsage(p *page, nodes []report.Node) {
	t := table{columns: []column{
		{title: "node", wraps: true},
		{title: "cpu\nused", right: true}, {title: "throttled", right: true}, {title: "limit", right: true},
		{title: "memory\nnow", right: true}, {title: "peak", right: true}, {title: "limit", right: true},
		{title: "pids\nnow", right: true}, {title: "refused", right: true}, {title: "limit", right: true},
	}}
	for i := range nodes {
		n := &nodes[i]
		if n.Usage == nil || n.Limits == nil {
			continue
		}
		u, l := n.Usage, n.Limits
		t.add(n.Name, cell(u.CPUSeconds, seconds), cell(u.ThrottledSeconds, seconds), cell(l.CPU, words.Significant),
			cell(u.Memory, words.Size), cell(u.MemoryPeak, words.Size), cell(l.Memory, words.Size),
			cell(u.PIDs, words.Count), cell(u.PIDsRefused, words.Count), cell(l.PIDs, words.Count))
	}
	if len(t.rows) > 0 {
		p.table(&t)
	}
}

func seconds(s float64) string { return words.Duration(s * 1e6) }

// cell returns a value for people; "-" is none.
func cell[T any](value *T, format func(T) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}
