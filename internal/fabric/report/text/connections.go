package text

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// WriteConnections writes connections for people.
func WriteConnections(w io.Writer, c *report.Connections) error {
	p := newPage(w)
	if len(c.Connections) == 0 {
		p.section()
		p.line("no connections, listeners or shared endpoints")
	} else {
		writeConnectionTable(p, c.Connections)
	}
	writeNodeStates(p, c.Nodes)
	return p.flush()
}

func writeConnectionTable(p *page, list []adapter.Connection) {
	t := table{columns: []column{
		{title: "node", wraps: true}, {title: "mode"}, {title: "If\nIndex", right: true}, {title: "type"},
		{title: "local address", wraps: true}, {title: "foreign address", wraps: true}, {title: "PID", right: true},
		{title: "state"}, {title: "QPN", right: true}, {title: "foreign\nQPN", right: true},
	}}
	verbs := slices.ContainsFunc(list, func(c adapter.Connection) bool { return c.Transport != "" })
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
			cells = append(cells, below(words.Count(c.Sent), words.Count(c.Received)))
		case verbs:
			cells = append(cells, "-")
		}
		t.add(cells...)
	}
	p.table(&t)
}

// below returns a cell with a second line, if there is one.
func below(first, second string) string { return strings.TrimSuffix(first+"\n"+second, "\n") }

// qpn returns the number of a queue pair, "-" if there is none.
func qpn(number uint32) string {
	if number == 0 {
		return "-"
	}
	return "0x" + strconv.FormatUint(uint64(number), 16)
}
