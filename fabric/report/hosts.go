package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Lab is one that is up, in a list of those.
type Lab struct {
	Lab   string
	Seed  uint64
	State string
	Nodes int
	Links int
	Up    float64 // seconds since all nodes were ready; 0 before
	// Of the nodes, those that are down and those that are paused.
	Down   int
	Paused int
	Labels map[string]string
}

// WriteLabs writes a list of labs for people.
func WriteLabs(w io.Writer, labs []Lab) error {
	p := newPage(w)
	if len(labs) == 0 {
		p.line("no lab is up")
		return p.flush()
	}
	t := table{columns: []column{
		{title: "lab", wraps: true}, {title: "state"}, {title: "nodes", right: true}, {title: "links", right: true},
		{title: "up for", right: true}, {title: "seed", right: true},
	}}
	labelled := slices.ContainsFunc(labs, func(l Lab) bool { return len(l.Labels) > 0 })
	if labelled {
		t.columns = append(t.columns, column{title: "labels", wraps: true})
	}
	for _, l := range labs {
		nodes, links, up, seed := "-", "-", "-", "-" // not known before it is ready
		if l.Up > 0 {
			nodes, links, seed = fmt.Sprint(l.Nodes), fmt.Sprint(l.Links), count(l.Seed)
			up = time.Duration(l.Up * float64(time.Second)).Round(time.Second).String()
		}
		if l.Down > 0 {
			nodes += fmt.Sprintf(", %d down", l.Down)
		}
		if l.Paused > 0 {
			nodes += fmt.Sprintf(", %d paused", l.Paused)
		}
		row := []string{l.Lab, l.State, nodes, links, up, seed}
		if labelled {
			row = append(row, topology.FormatLabels(l.Labels))
		}
		t.add(row...)
	}
	p.table(&t)
	return p.flush()
}

// WriteInspection writes the state of a lab that is up for people.
func WriteInspection(w io.Writer, lab, state string, seed uint64, nodes []Node, links []Link, externals []External) error {
	p := newPage(w)
	p.section()
	p.line(fmt.Sprintf("lab %s: %s, seed %d", lab, state, seed))
	p.nodes(nodes)
	p.usage(nodes)
	p.links(links)
	p.externals(externals)
	return p.flush()
}

// nodeCounters are the columns of the table of nodes, under their names in
// NDIS_NDK_PERFORMANCE_COUNTERS (ndkpi.md 3.5), broken to save room.
var nodeCounters = []struct {
	name, title string
	format      func(uint64) string
}{
	{"Connect", "Connect", count},
	{"Accept", "Accept", count},
	{"ConnectFailure", "Connect\nFailure", count},
	{"ConnectionError", "Connection\nError", count},
	{"ActiveConnection", "Active\nConnection", count},
	{"CQError", "CQ\nError", count},
	{"RDMAInOctets", "RDMAIn\nOctets", Size},
	{"RDMAOutOctets", "RDMAOut\nOctets", Size},
	{"RDMAInFrames", "RDMAIn\nFrames", count},
	{"RDMAOutFrames", "RDMAOut\nFrames", count},
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

func (p *page) nodes(nodes []Node) {
	if len(nodes) == 0 {
		return
	}
	t := table{columns: []column{{title: "node", wraps: true}}}
	for _, c := range nodeCounters {
		t.columns = append(t.columns, column{title: c.title, right: true})
	}
	for _, n := range nodes {
		if n.Kind == kindSwitch || n.Kind == kindRouter {
			continue // without an adapter nothing is counted
		}
		row := []string{n.Name}
		for _, c := range nodeCounters {
			value, known := n.Counters[c.name]
			if known {
				row = append(row, c.format(value))
			} else {
				row = append(row, "-")
			}
		}
		t.add(row...)
	}
	p.table(&t)
	p.line("")
	for _, n := range nodes {
		if story := n.story(); story != "" && n.Kind != kindSwitch {
			p.paragraph(n.Name+": ", story)
		}
	}
	p.ports(nodes)
}

// story says what there is to say of a node besides its counters.
func (n *Node) story() string {
	var parts []string
	if n.Kind == kindRouter {
		parts = append(parts, kindRouter)
	}
	if n.State != "" && n.State != NodeReady || n.Reason != "" {
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
	if n.PID != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", n.PID))
	}
	if n.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("restarts: %d", n.Restarts))
	}
	parts = append(parts, n.Addresses...)
	if sent, ok := n.Transport["packets_sent"]; ok {
		parts = append(parts, count(sent)+" packets sent")
	}
	if received, ok := n.Transport["packets_received"]; ok {
		parts = append(parts, count(received)+" received")
	}
	for _, t := range transportTroubles {
		if value := n.Transport[t.name]; value > 0 {
			parts = append(parts, count(value)+" "+t.words)
		}
	}
	return strings.Join(parts, ", ")
}
