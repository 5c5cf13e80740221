package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// keptEvents bounds the events that are remembered.
const keptEvents = 200

// A model is all that top shows. It belongs to the program's loop, as tea has it.
type model struct {
	lab      string
	paint    paint
	observe  func(time.Duration) tea.Cmd
	asks     asks
	interval time.Duration

	width, height int
	of            *live.Map
	sample        *live.Sample
	trends        trends
	events        []event.Event
	connections   []adapter.Connection
	asking        bool // connections have been asked for

	tab       tab
	views     [tabs]view
	filtering bool   // what is typed is the filter
	detail    bool   // of the row that is chosen
	help      bool   // the keys are explained
	told      string // what became of the last change, or why there is no sample
	trouble   bool   // told is of something that failed
}

// A tab is one of the tables.
type tab int

// The tables.
const (
	nodesTab tab = iota
	linksTab
	flowsTab
	pairsTab
	tabs
)

// A view has the choices of the user for a table.
type view struct {
	order  order
	filter string
	chosen string // the key of the row; "" is the first
	at     int    // where it was last
	top    int    // the first row that is shown
}

func newModel(lab string, color bool, observe func(time.Duration) tea.Cmd, asks asks, interval time.Duration) *model {
	return &model{lab: lab, paint: paint(color), observe: observe, asks: asks, interval: interval, trends: trends{}, width: 80, height: 24}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.observe(0) }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case observed:
		return m, m.take(msg)
	case happened:
		if msg.Kind == event.WorkloadProgress { // which the table of flows shows
			return m, nil
		}
		m.events = append(m.events, event.Event(msg))
		if len(m.events) > keptEvents {
			m.events = slices.Delete(m.events, 0, len(m.events)-keptEvents)
		}
	case connected:
		m.asking = false
		if msg.err != nil {
			m.tell(true, "%v", msg.err)
		} else {
			m.connections = msg.list
		}
	case changed:
		if msg.err != nil {
			m.tell(true, "%s: %v", msg.command, msg.err)
		} else {
			m.tell(false, "%s: %s", msg.command, msg.text)
		}
	case tea.PasteMsg:
		if m.filtering {
			m.views[m.tab].filter += msg.Content
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// take takes an observation, and returns what is to be asked for next.
func (m *model) take(o observed) tea.Cmd {
	next := m.observe(m.interval)
	if o.err != nil {
		m.tell(true, "%v", o.err)
		return next
	}
	m.of, m.sample = o.of, o.sample
	m.trends.add(m.of, m.sample)
	if m.trouble { // which is over
		m.tell(false, "")
	}
	return tea.Batch(next, m.askConnections())
}

// askConnections asks for connections where these are shown.
func (m *model) askConnections() tea.Cmd {
	if m.tab != pairsTab || m.asking {
		return nil
	}
	m.asking = true
	return m.asks.connections
}

func (m *model) tell(trouble bool, format string, args ...any) {
	m.told, m.trouble = fmt.Sprintf(format, args...), trouble
}

// press does what a key stands for.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	if key == "ctrl+c" {
		return tea.Quit
	}
	v := &m.views[m.tab]
	if m.filtering {
		switch key {
		case "enter":
			m.filtering = false
		case "esc":
			m.filtering, v.filter = false, ""
		case "backspace":
			if letters := []rune(v.filter); len(letters) > 0 {
				v.filter = string(letters[:len(letters)-1])
			}
		default:
			v.filter += msg.Key().Text
		}
		return nil
	}
	if m.help {
		m.help = false
		if key == "?" || key == "esc" || key == "enter" {
			return nil
		}
	}
	m.tell(false, "")
	switch key {
	case "q":
		return tea.Quit
	case "?":
		m.help = true
	case "1", "2", "3", "4":
		return m.open(tab(key[0] - '1'))
	case "tab", "right", "l":
		return m.open((m.tab + 1) % tabs)
	case "shift+tab", "left", "h":
		return m.open((m.tab + tabs - 1) % tabs)
	case "down", "j":
		m.move(1)
	case "up", "k":
		m.move(-1)
	case "pgdown", "space":
		m.move(m.room())
	case "pgup":
		m.move(-m.room())
	case "home", "g":
		m.move(-len(m.rows()))
	case "end", "G":
		m.move(len(m.rows()))
	case "enter":
		m.detail = !m.detail && m.row() != nil
	case "esc":
		if !m.detail {
			v.filter = ""
		}
		m.detail = false
	case "/":
		m.filtering, m.detail = true, false
	case "s":
		v.order = (v.order + 1) % orders
	case "p", "c":
		return m.act(key)
	case "u":
		m.tell(false, "undo ...")
		return m.asks.undo
	}
	return nil
}

// open shows another table.
func (m *model) open(t tab) tea.Cmd {
	m.tab, m.detail = t, false
	return m.askConnections()
}

// move chooses a row so many further down.
func (m *model) move(by int) {
	rows := m.rows()
	if len(rows) == 0 {
		return
	}
	v := &m.views[m.tab]
	v.at = max(0, min(len(rows)-1, m.index(rows)+by))
	v.chosen = rows[v.at].key
}

// index returns which of the rows is chosen: where the last one was if that is gone.
func (m *model) index(rows []row) int {
	v := &m.views[m.tab]
	if v.chosen == "" {
		return 0
	}
	for i := range rows {
		if rows[i].key == v.chosen {
			return i
		}
	}
	return max(0, min(len(rows)-1, v.at))
}

// row returns the row that is chosen; nil if there is none.
func (m *model) row() *row {
	rows := m.rows()
	if len(rows) == 0 {
		return nil
	}
	return &rows[m.index(rows)]
}

// act does what a key does to the row that is chosen.
func (m *model) act(key string) tea.Cmd {
	r := m.row()
	if r == nil {
		return nil
	}
	for _, a := range m.actions(r) {
		if a.key == key {
			m.tell(false, "%s ...", a.change.Command(m.lab))
			m.views[m.tab].chosen = r.key // which the change may move elsewhere
			return m.asks.change(a.change)
		}
	}
	m.tell(true, "%s", map[string]string{"p": "p pauses a node: 1 shows nodes", "c": "c cuts a link: 2 shows links"}[key])
	return nil
}

// An action is a change that a key does.
type action struct {
	key    string
	change live.Change
}

// actions are those of a row.
func (m *model) actions(r *row) []action {
	switch m.tab {
	case nodesTab:
		act := live.ActPause
		if m.sample.Nodes[r.index].State == core.NodeIsPaused {
			act = live.ActResume
		}
		return []action{{"p", live.Change{Act: act, Node: m.of.Nodes[r.index].Name}}}
	case linksTab:
		l, endpoint := &m.sample.Links[r.index], m.of.Links[r.index].Endpoints[0]
		if strings.HasPrefix(endpoint, "external:") {
			endpoint = m.of.Links[r.index].Endpoints[1]
		}
		switch {
		case !l.Up:
			return []action{{"c", live.Change{Act: live.ActHeal, Endpoint: endpoint}}}
		case slices.Contains(l.Ends[0].Set, "cut=true") || slices.Contains(l.Ends[1].Set, "cut=true"):
			return []action{{"c", live.Change{Act: live.ActSet, Endpoint: endpoint, Settings: []string{"cut=none"}}}}
		}
		return []action{{"c", live.Change{Act: live.ActCut, Endpoint: endpoint}}}
	}
	return nil
}
