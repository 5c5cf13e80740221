package top

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// An order is one of rows.
type order int

// The orders.
const (
	byTrouble order = iota
	byRate
	byName
	orders
)

func (o order) String() string { return [orders]string{"trouble", "rate", "name"}[o] }

// A level says how bad something is.
type level int

// The levels.
const (
	fine level = iota
	notable
	bad
)

// mark is the level without colours.
func (l level) mark() string { return [...]string{" ", "*", "!"}[l] }

// A row is a line of a table: what it is sorted by, and which of the sample's values it shows.
type row struct {
	key   string
	level level
	worth float64 // how much of the trouble there is
	rate  float64
	index int
}

// A column is one of a table. Those of the highest rank are left out first where there is no room.
type column struct {
	title string
	width int // characters; that of what may grow is the least
	rank  int
	right bool
}

// The columns of the tables. The first takes the room that the others leave, and half of that is the trend's.
var columnsOf = [tabs][]column{
	nodesTab: {{"node", 10, 0, false}, {"state", 12, 0, false}, {"out", 9, 0, true}, {"in", 9, 1, true}, {"resent/s", 8, 0, true},
		{"errors/s", 8, 2, true}, {"packets/s", 9, 4, true}, {"CNPs/s", 8, 6, true}, {"paused", 6, 6, true}, {"QPs", 5, 5, true}, {"conns", 5, 5, true}},
	linksTab: {{"link", 20, 0, false}, {"state", 5, 0, false}, {"rate ->", 9, 0, true}, {"rate <-", 9, 1, true}, {"load", 6, 3, true}, {"lost/s", 7, 0, true},
		{"dropped/s", 9, 2, true}, {"marked/s", 8, 5, true}, {"delay", 8, 4, true}, {"queue", 9, 6, true}},
	flowsTab: {{"workload", 12, 0, false}, {"node", 10, 1, false}, {"rate", 9, 0, true}, {"messages/s", 10, 2, true}, {"median", 8, 0, true}, {"99 %", 8, 1, true}, {"errors/s", 8, 0, true}},
	pairsTab: {{"node", 10, 0, false}, {"type", 14, 2, false}, {"state", 11, 0, false}, {"local", 21, 1, false}, {"remote", 21, 1, false}, {"QPN", 8, 3, true},
		{"sent", 9, 4, true}, {"received", 9, 4, true}, {"process", 14, 5, false}},
}

// titles are the tables' names.
var titles = [tabs]string{"nodes", "links", "flows", "QPs"}

// rows returns the rows of the table that is shown, in their order, but for those that the filter leaves out.
func (m *model) rows() []row {
	if m.sample == nil {
		return nil
	}
	rows := m.all(m.tab)
	v := &m.views[m.tab]
	if want := strings.ToLower(v.filter); want != "" {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !strings.Contains(strings.ToLower(m.searched(r)), want) })
	}
	sortRows(rows, v.order)
	return rows
}

func sortRows(rows []row, by order) {
	slices.SortStableFunc(rows, func(a, b row) int {
		switch by {
		case byTrouble:
			return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(b.worth, a.worth), cmp.Compare(b.rate, a.rate))
		case byRate:
			return cmp.Compare(b.rate, a.rate)
		}
		return cmp.Compare(a.key, b.key)
	})
}

// searched is the text of a row that a filter is compared with.
func (m *model) searched(r row) string {
	return strings.Join(m.cells(m.tab, r), " ")
}

// all returns the rows of a table.
func (m *model) all(t tab) (rows []row) {
	switch t {
	case nodesTab:
		for i := range m.sample.Nodes {
			n := &m.sample.Nodes[i]
			level, worth := nodeTrouble(n)
			rows = append(rows, row{m.of.Nodes[i].Name, level, worth, n.Out + n.In, i})
		}
	case linksTab:
		for i := range m.sample.Links {
			l := &m.sample.Links[i]
			level, worth := linkTrouble(l)
			rows = append(rows, row{m.of.Links[i].Endpoints[0], level, worth, l.Ends[0].Rate + l.Ends[1].Rate, i})
		}
	case flowsTab:
		for i := range m.sample.Workloads {
			w := &m.sample.Workloads[i]
			r := row{key: w.Name + " " + m.of.Nodes[w.Node].Name, rate: w.Rate, index: i, worth: w.Errors}
			if w.Errors > 0 {
				r.level = bad
			}
			rows = append(rows, r)
		}
	case pairsTab:
		for i := range m.connections {
			c := &m.connections[i]
			r := row{key: strings.Join([]string{c.Node, c.Type, c.Local, c.Remote, strconv.Itoa(int(c.QPN))}, " "), rate: float64(c.Sent + c.Received), index: i}
			if slices.Contains([]string{"Error", "ERR", "SQE"}, c.State) {
				r.level = bad
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// nodeTrouble returns how bad a node is, and by how much.
func nodeTrouble(n *live.NodeSample) (level, float64) {
	switch worth := n.Errors + n.Resent + n.Paused; {
	case n.State != core.NodeIsReady && n.State != core.NodeIsStarting || n.Health == core.Unhealthy || n.Errors > 0:
		return bad, worth
	case worth > 0 || n.CNPs > 0:
		return notable, worth + n.CNPs
	}
	return fine, 0
}

// fullLoad is the share of its rate from which a link is notable.
const fullLoad = 0.9

// linkTrouble returns how bad a link is, and by how much. Loss that was asked for is notable.
func linkTrouble(l *live.LinkSample) (level, float64) {
	how, worth := fine, 0.0
	if !l.Up {
		how = bad
	}
	for i := range l.Ends {
		d := &l.Ends[i]
		switch worth += d.Lost + d.Dropped; {
		case d.Cut || d.Lost > 0:
			how = bad
		case d.Dropped > 0 || d.Marked > 0 || load(d) >= fullLoad:
			how = max(how, notable)
		}
	}
	return how, worth
}

// load is the load of a direction; 0 if it is not known.
func load(d *live.DirectionSample) float64 {
	if d.Load == nil {
		return 0
	}
	return *d.Load
}

// cells returns the cells of a row, as columnsOf has them. Texts of the lab are without control characters.
func (m *model) cells(t tab, r row) []string {
	switch t {
	case nodesTab:
		n := &m.sample.Nodes[r.index]
		return []string{line(m.of.Nodes[r.index].Name), stateOf(n), rate(n.Out), rate(n.In), number(n.Resent), number(n.Errors), number(n.Packets), number(n.CNPs),
			percent(n.Paused), count(n.QPs), count(n.Conns)}
	case linksTab:
		l, of := &m.sample.Links[r.index], &m.of.Links[r.index]
		a, b := &l.Ends[0], &l.Ends[1]
		return []string{line(of.Endpoints[0] + " - " + of.Endpoints[1]), stateOfLink(l), rate(a.Rate), rate(b.Rate), percent(max(load(a), load(b))),
			number(a.Lost + b.Lost), number(a.Dropped + b.Dropped), number(a.Marked + b.Marked), duration(most(a.Delay, b.Delay)), size(most(a.Queue, b.Queue))}
	case flowsTab:
		w := &m.sample.Workloads[r.index]
		return []string{line(w.Name), line(m.of.Nodes[w.Node].Name), rate(w.Rate), number(w.Messages), duration(w.P50), duration(w.P99), number(w.Errors)}
	default:
		c := &m.connections[r.index]
		return []string{line(c.Node), line(strings.TrimSpace(c.Type + " " + c.Transport)), line(cmp.Or(c.State, "-")), line(cmp.Or(c.Local, "-")), line(cmp.Or(c.Remote, "-")),
			number16(c.QPN), count(int(c.Sent)), count(int(c.Received)), line(cmp.Or(c.Process, c.Mode))}
	}
}

// stateOf returns a node's state and health.
func stateOf(n *live.NodeSample) string {
	if n.State == core.NodeIsReady && n.Health != "" && n.Health != core.Healthy {
		return line(n.Health)
	}
	return line(n.State)
}

// stateOfLink returns a link's state.
func stateOfLink(l *live.LinkSample) string {
	switch {
	case !l.Up:
		return "down"
	case l.Ends[0].Cut && l.Ends[1].Cut:
		return "cut"
	case l.Ends[0].Cut:
		return "cut>"
	case l.Ends[1].Cut:
		return "cut<"
	}
	return "up"
}

// most returns the larger of values that may be unknown.
func most(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// none stands for nothing, and for what is not known.
const none = "-"

func rate(bits float64) string {
	if bits == 0 {
		return none
	}
	return words.Short(words.Rate(bits / 1e9))
}

func number(x float64) string {
	if x == 0 {
		return none
	}
	for _, unit := range []struct {
		from, of float64
		name     string
	}{{1e9, 1e9, " G"}, {1e6, 1e6, " M"}, {1e4, 1e3, " k"}} {
		if x >= unit.from {
			return words.Short(words.Significant(x/unit.of) + unit.name)
		}
	}
	return words.Quantity(x, "")
}

func count(n int) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// number16 returns the number of a queue pair, as `ndklab connections` has it.
func number16(n uint32) string {
	if n == 0 {
		return none
	}
	return "0x" + strconv.FormatUint(uint64(n), 16)
}

func percent(share float64) string {
	if share == 0 {
		return none
	}
	return strconv.Itoa(int(math.Round(100*share))) + " %"
}

func duration(us *float64) string {
	if us == nil {
		return none
	}
	return words.Short(words.Duration(*us))
}

func size(bytes *float64) string {
	if bytes == nil || *bytes == 0 {
		return none
	}
	return words.Size(uint64(*bytes))
}

// line returns text as a line that does nothing to the terminal.
func line(s string) string { return strings.ReplaceAll(text.Plain(s), "\n", " ") }
