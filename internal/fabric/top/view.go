package top

import (
	"fmt"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/ndklab/ndklab/internal/fabric/event"
)

// paint says whether there are colours. Marks and words say the same.
type paint bool

func (on paint) in(attribute, s string) string {
	if !on || s == "" {
		return s
	}
	return "\x1b[" + attribute + "m" + s + "\x1b[0m"
}

// SGR attributes (ECMA-48, 8.3.117).
const (
	bold    = "1"
	dim     = "2"
	inverse = "7"
	red     = "31"
	yellow  = "33"
)

// of returns the attribute of a level; "" of none.
func (l level) attribute() string { return [...]string{"", yellow, red}[l] }

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	return v
}

// Lines beside the table: the head, the tabs and the titles above; the row's command and the keys below.
const (
	linesAbove = 3
	linesBelow = 2
)

// eventLines is the number of events that there is room for.
func (m *model) eventLines() int { return max(0, min(4, (m.height-linesAbove-linesBelow)/4)) }

// room is the number of rows that there is room for.
func (m *model) room() int { return max(1, m.height-linesAbove-linesBelow-m.eventLines()) }

// screen returns the lines of the screen, none wider than it.
func (m *model) screen() []string {
	lines := []string{m.paint.in(bold, m.fit(m.head())), m.tabLine()}
	switch {
	case m.help:
		lines = append(lines, m.block(helpLines, 1+m.room()+m.eventLines())...)
	case m.sample == nil:
		lines = append(lines, m.block([]string{"", "waiting for the lab ..."}, 1+m.room())...)
	case m.detail && m.row() != nil:
		lines = append(lines, m.block(m.detailLines(m.row()), 1+m.room())...)
	default:
		lines = append(lines, m.table()...)
	}
	if !m.help {
		lines = append(lines, m.lastEvents()...)
	}
	lines = append(lines, m.saying(), m.paint.in(dim, m.fit(keysLine)))
	return lines[:min(len(lines), m.height)]
}

const keysLine = "q quit  ? help  1-4 tabs  / filter  s sort  enter detail"

var helpLines = []string{
	"1 2 3 4     nodes, links, flows of workloads, queue pairs",
	"tab left right   the next table",
	"up down j k      another row; page up and down, home, end",
	"enter       all of the row that is chosen; once more: back",
	"s           sort: trouble first, by rate, by name",
	"/           show rows with a text alone; esc: all again",
	"p           pause a node, or have it go on",
	"c           cut a link, or heal it",
	"u           undo the last change; q ctrl+c: quit",
	"",
	"! is trouble: down, cut, lost unasked, errors",
	"* is notable: resent, dropped as asked, marked, load of 90 %",
	"Rates are of the time since the sample before.",
}

// head says what lab it is and how it is.
func (m *model) head() string {
	if m.sample == nil {
		return line(m.lab)
	}
	s := m.sample
	troubled := 0
	for _, t := range []tab{nodesTab, linksTab, flowsTab} {
		for _, r := range m.all(t) {
			if r.level == bad {
				troubled++
			}
		}
	}
	text := fmt.Sprintf("%s: %s, up %s, nodes %d, links %d", line(m.lab), line(s.State), clock(s.At), len(s.Nodes), len(s.Links))
	if troubled > 0 {
		text += fmt.Sprintf(", in trouble %d", troubled)
	}
	return text
}

// clock returns seconds as hours, minutes and seconds.
func clock(seconds float64) string {
	n := int(seconds)
	return fmt.Sprintf("%d:%02d:%02d", n/3600, n/60%60, n%60)
}

// tabLine has the tables' names, and how the one that is shown is sorted and filtered.
func (m *model) tabLine() string {
	var parts []string
	length := 0
	for t := range tabs {
		name := fmt.Sprintf(" %d %s ", t+1, titles[t])
		if t == m.tab {
			name = fmt.Sprintf("[%d %s]", t+1, titles[t])
		}
		length += len(name)
		if t == m.tab {
			name = m.paint.in(bold, name)
		}
		parts = append(parts, name)
	}
	v := &m.views[m.tab]
	right := " by " + v.order.String()
	if v.filter != "" || m.filtering {
		right += ", /" + line(v.filter)
		if m.filtering {
			right += "_"
		}
	}
	if length > m.width {
		return cut(titles[m.tab], m.width)
	}
	return strings.Join(parts, "") + cut(right, m.width-length)
}

// table returns the titles and the rows of the table that is shown.
func (m *model) table() []string {
	rows, columns := m.rows(), columnsOf[m.tab]
	widths, trend := m.widths(columns)
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.title
	}
	title := m.lay(columns, widths, cells, "  ")
	if trend > 0 {
		title += "  trend"
	}
	lines := []string{m.paint.in(bold, cut(title, m.width))}
	if len(rows) == 0 {
		return append(lines, m.block([]string{"  " + m.nothing()}, m.room())...)
	}
	v := &m.views[m.tab]
	at := m.index(rows)
	v.top = max(0, min(v.top, len(rows)-m.room()))
	v.top = max(min(v.top, at), at-m.room()+1)
	for i := v.top; i < min(len(rows), v.top+m.room()); i++ {
		r := rows[i]
		lead := " "
		if i == at {
			lead = ">"
		}
		l := m.lay(columns, widths, m.cells(m.tab, r), lead+r.level.mark())
		if trend > 0 {
			l += "  " + m.trends[m.tab][r.key].line(trend)
		}
		attribute := r.level.attribute()
		if i == at {
			attribute = strings.TrimPrefix(attribute+";"+inverse, ";")
		}
		if attribute != "" {
			l = m.paint.in(attribute, l)
		}
		lines = append(lines, l)
	}
	return m.block(lines, 1+m.room())
}

// nothing says why there are no rows.
func (m *model) nothing() string {
	switch {
	case m.views[m.tab].filter != "":
		return "no row has " + line(m.views[m.tab].filter)
	case m.tab == flowsTab:
		return "no workload has clients now"
	case m.tab == pairsTab && m.asking && m.connections == nil:
		return "waiting for the lab ..."
	}
	return "there are none"
}

// Widths of a table.
const (
	leadWidth  = 2
	gapWidth   = 2
	leastTrend = 8
	trendRank  = 2  // of the trend, among the columns
	lastRank   = 6  // of a column
	mostName   = 40 // by which the first column grows
)

// widths returns the width of each column, 0 of those that there is no room for, and that of the trend.
func (m *model) widths(columns []column) (widths []int, trend int) {
	widths = make([]int, len(columns))
	room := m.width - leadWidth + gapWidth
	for rank := range lastRank + 1 {
		if rank == trendRank && m.tab != pairsTab && room >= leastTrend+gapWidth {
			trend = leastTrend
			room -= trend + gapWidth
		}
		for i, c := range columns {
			if c.rank == rank && (room >= c.width+gapWidth || rank == 0) {
				widths[i] = c.width
				room -= c.width + gapWidth
			}
		}
	}
	room = max(room, leadWidth+1-m.width)
	if trend > 0 {
		more := min(keptValues-trend, room/2)
		trend, room = trend+more, room-more
	}
	widths[0] = max(1, widths[0]+min(room, mostName))
	return widths, trend
}

// lay lays cells out in a line.
func (m *model) lay(columns []column, widths []int, cells []string, lead string) string {
	var b strings.Builder
	b.WriteString(lead)
	first := true
	for i, c := range columns {
		if widths[i] == 0 {
			continue
		}
		if !first {
			b.WriteString(strings.Repeat(" ", gapWidth))
		}
		first = false
		cell := cut(cells[i], widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if c.right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return cut(b.String(), m.width)
}

// lastEvents returns the latest events, the last one below, with a line above if there are any.
func (m *model) lastEvents() []string {
	n := m.eventLines()
	var lines []string
	for _, e := range m.events[max(0, len(m.events)-n):] {
		lines = append(lines, m.fit(eventLine(&e)))
	}
	return append(m.block(nil, n-len(lines)), lines...)
}

// eventLine returns an event as a line.
func eventLine(e *event.Event) string {
	return fmt.Sprintf("%s %s: %s", clock(e.At.Seconds()), line(e.Kind), line(e.Text))
}

// saying says what became of the last change or else what can be done to the row that is chosen, by the command that does it.
func (m *model) saying() string {
	if m.told != "" {
		attribute := bold
		text := line(m.told)
		if m.trouble {
			attribute, text = red, "! "+text
		}
		return m.paint.in(attribute, m.fit(text))
	}
	if r := m.row(); r != nil {
		for _, a := range m.actions(r) {
			return m.fit(a.key + "  " + line(a.change.Command(m.lab)))
		}
	}
	return ""
}

// block returns so many lines, which fit, with empty ones behind if need be.
func (m *model) block(lines []string, height int) []string {
	all := make([]string, max(0, height))
	for i := range all {
		if i < len(lines) {
			all[i] = lines[i]
			if !strings.Contains(all[i], "\x1b") {
				all[i] = m.fit(all[i])
			}
		}
	}
	return all
}

// fit cuts a line to the screen's width.
func (m *model) fit(s string) string { return cut(s, m.width) }

// cut returns text of at most so many characters, of which the last says that there is more.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	if most <= 0 {
		return ""
	}
	return string([]rune(s)[:most-1]) + "…"
}
