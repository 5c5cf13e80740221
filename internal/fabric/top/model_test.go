package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/golden"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// A user is at a model, and knows what that asks of the lab.
type user struct {
	testing.TB
	*model
	observed int // how often
	asked    int // for connections
	undone   int
	changes  []live.Change
	quit     bool
}

func newUser(t testing.TB, color bool) *user {
	u := &user{TB: t}
	u.model = newModel("pair", color, func(time.Duration) tea.Cmd { u.observed++; return nil }, asks{
		connections: func() tea.Msg { u.asked++; return nil },
		change:      func(c live.Change) tea.Cmd { u.changes = append(u.changes, c); return nil },
		undo:        func() tea.Msg { u.undone++; return changed{command: "ndklab resume pair/b", text: "node b is ready"} },
	}, time.Second)
	return u
}

// send has the model take a message, and does what it asks for.
func (u *user) send(msg tea.Msg) {
	u.Helper()
	_, cmd := u.Update(msg)
	u.do(cmd)
}

func (u *user) do(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			u.do(c)
		}
	case tea.QuitMsg:
		u.quit = true
	case changed:
		u.send(msg)
	}
}

// press presses keys: letters, or one by its name.
func (u *user) press(keys ...string) {
	u.Helper()
	for _, key := range keys {
		code, known := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "backspace": tea.KeyBackspace,
			"tab": tea.KeyTab, "end": tea.KeyEnd, "home": tea.KeyHome, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp}[key]
		switch {
		case key == "ctrl+c":
			u.send(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
		case key == "shift+tab":
			u.send(tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift})
		case known:
			u.send(tea.KeyPressMsg{Code: code})
		default:
			for _, r := range key {
				u.send(tea.KeyPressMsg{Code: r, Text: string(r)})
			}
		}
	}
}

// text returns the screen.
func (u *user) text() string { return strings.Join(u.screen(), "\n") }

// chosen returns the first word of the row that is chosen.
func (u *user) row1() string {
	u.Helper()
	for _, l := range u.screen() {
		if strings.HasPrefix(l, ">") {
			return strings.Fields(strings.TrimLeft(l, ">!* "))[0]
		}
	}
	return ""
}

// pairLab is a lab of four nodes, of which some are in trouble.
func pairLab() observed {
	return observed{of: &live.Map{Lab: "pair",
		Nodes: []live.Node{{Name: "a", Kind: "host"}, {Name: "b", Kind: "host"}, {Name: "c", Kind: "host"}, {Name: "sw", Kind: "switch"}},
		Links: []live.Link{{Endpoints: [2]string{"a:eth0", "sw:p1"}, Nodes: [2]int{0, 3}}, {Endpoints: [2]string{"b:eth0", "sw:p2"}, Nodes: [2]int{1, 3}},
			{Endpoints: [2]string{"c:eth0", "sw:p3"}, Nodes: [2]int{2, 3}}, {Endpoints: [2]string{"external:tap0", "c:eth1"}, Nodes: [2]int{4, 2}}},
		Flows: []live.Flow{{Workload: "bulk", From: 0, To: 1, Hops: []live.Hop{{Link: 0, End: 0}, {Link: 1, End: 1}}, Shared: true}},
	}, sample: &live.Sample{At: 3723.4, Over: 1, State: "ready",
		Nodes: []live.NodeSample{
			{State: "ready", Out: 8.41e9, In: 1e6, Packets: 1.2e6, QPs: 4, Conns: 2}, {State: "ready", Out: 1e6, In: 8.2e9, Packets: 9e5, Resent: 12, CNPs: 3, Paused: 0.25, QPs: 4, Conns: 2},
			{State: "paused"}, {State: "ready"},
		},
		Links: []live.LinkSample{
			{Up: true, Ends: [2]live.DirectionSample{{Rate: 9.4e9, Packets: 1.2e6, Load: new(0.94), Delay: new(10.4), Queue: new(65536.0), Set: []string{"rate=10gbit"}}, {Rate: 1e6}}},
			{Up: true, Ends: [2]live.DirectionSample{{Rate: 1e6}, {Rate: 9.2e9, Lost: 17, Dropped: 3, Marked: 40, Set: []string{"loss=1%"}}}},
			{Up: true, Ends: [2]live.DirectionSample{{Cut: true, Set: []string{"cut=true"}}, {}}},
			{Up: false},
		},
		Workloads: []live.WorkloadSample{{Name: "bulk", Node: 0, Rate: 8.2e9, Messages: 15600, P50: new(61.2), P99: new(1203.0)}, {Name: "small", Node: 2, Errors: 2}},
	}}
}

func (u *user) fill() {
	u.send(pairLab())
	for i, e := range []event.Event{
		{Kind: "lab-ready", Text: "all nodes are ready"},
		{Kind: "workload-progress", Workload: "bulk", Text: "messages: 3", At: time.Second},
		{Kind: "node-paused", Node: "c", Text: "node c is paused", At: 90 * time.Minute},
		{Kind: "link-changed", Link: "sw:p2", Text: "link b:eth0: loss 1%\nthe second line of a text that is longer than the narrowest of terminals is wide", At: 2 * time.Hour},
	} {
		e.Lab = fmt.Sprint(i)
		u.send(happened(e))
	}
	u.send(connected{list: []adapter.Connection{
		{Node: "a", Type: "Connection", Local: "10.0.0.1:49152", Remote: "10.0.0.2:5000", State: "established", Mode: "Kernel"},
		{Node: "b", Type: "QueuePair", Transport: "RC", State: "ERR", QPN: 0x1234, Sent: 12, Received: 34, PID: 77, Process: "ib_write_bw"},
	}})
}

// The views are those that somebody has looked at.
func TestViews(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		u := newUser(t, false)
		u.send(tea.WindowSizeMsg{Width: width, Height: 16})
		var all strings.Builder
		shot := func(what string) {
			u.Helper()
			lines := u.screen()
			if len(lines) != 16 {
				t.Errorf("%s at %d columns: %d lines, want 16", what, width, len(lines))
			}
			fmt.Fprintf(&all, "== %s\n", what)
			for _, l := range lines {
				if n := utf8.RuneCountInString(l); n > width {
					t.Errorf("%s at %d columns: %d of them: %q", what, width, n, l)
				}
				fmt.Fprintf(&all, "%s\n", strings.TrimRight(l, " "))
			}
		}
		shot("before the first sample")
		u.fill()
		shot("nodes")
		u.press("2")
		shot("links")
		u.press("enter")
		shot("a link")
		u.press("enter", "3")
		shot("flows")
		u.press("down", "enter")
		shot("a flow")
		u.press("4")
		shot("queue pairs")
		u.press("1", "/", "sw")
		shot("a filter")
		u.press("zzz")
		shot("a filter that nothing fits")
		u.press("esc", "?")
		shot("help")
		golden.Check(t, fmt.Sprintf("%d.txt", width), all.String())
	}
}

// Keys do what the help says, to the row that is chosen, which stays so wherever it is sorted to.
func TestKeys(t *testing.T) {
	u := newUser(t, false)
	u.do(u.Init())
	if u.observed != 1 {
		t.Errorf("observed %d times, want 1", u.observed)
	}
	u.press("p", "j", "enter", "G") // there is nothing yet
	u.fill()
	if u.observed != 2 || u.asked != 0 {
		t.Errorf("observed %d times and connections %d times, want 2 and 0", u.observed, u.asked)
	}
	if got := u.row1(); got != "c" { // which is paused
		t.Errorf("first by trouble: %s, want c", got)
	}
	u.press("p")
	u.press("down", "p")
	o := pairLab()
	o.sample.Nodes[1] = live.NodeSample{State: "ready"} // and is the last by now
	u.send(o)
	if got := u.row1(); got != "b" {
		t.Errorf("%s is chosen, want b", got)
	}
	u.press("s")
	if got := u.row1(); got != "b" || !strings.Contains(u.text(), "by rate") {
		t.Errorf("by rate: %s is chosen\n%s", got, u.text())
	}
	u.press("home")
	if got := u.row1(); got != "a" {
		t.Errorf("first by rate: %s, want a", got)
	}
	u.press("s", "end")
	if got := u.row1(); got != "sw" {
		t.Errorf("last by name: %s, want sw", got)
	}
	u.press("c")
	if !strings.Contains(u.text(), "! c cuts a link: 2 shows links") {
		t.Errorf("c at nodes:\n%s", u.text())
	}
	u.press("2", "home", "c") // c:eth0 is cut, b:eth0 has lost some, c:eth1 is down
	u.press("down", "c")
	u.press("down", "c")
	u.press("end", "c")
	want := []live.Change{{Act: "resume", Node: "c"}, {Act: "pause", Node: "b"},
		{Act: "cut", Endpoint: "b:eth0"}, {Act: "set", Endpoint: "c:eth0", Settings: []string{"cut=none"}}, {Act: "heal", Endpoint: "c:eth1"}, {Act: "cut", Endpoint: "a:eth0"}}
	if diff := cmp.Diff(want, u.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if !strings.Contains(u.text(), "ndklab link down pair/a:eth0 ...") {
		t.Errorf("while it is done:\n%s", u.text())
	}
	u.send(changed{command: "ndklab link down pair/a:eth0", err: errors.New("link a:eth0: it is gone")})
	if !strings.Contains(u.text(), "! ndklab link down pair/a:eth0: link a:eth0: it is gone") {
		t.Errorf("when it failed:\n%s", u.text())
	}
	if u.press("u"); u.undone != 1 || !strings.Contains(u.text(), "\nndklab resume pair/b: node b is ready\n") {
		t.Errorf("undone %d times:\n%s", u.undone, u.text())
	}
	u.press("tab", "tab")
	u.send(pairLab()) // while the first answer has not come
	if u.asked != 1 {
		t.Errorf("connections are asked for %d times, want once", u.asked)
	}
	u.send(connected{err: errors.New("lost")})
	if !strings.Contains(u.text(), "! lost") {
		t.Error(u.text())
	}
	u.press("tab", "shift+tab")
	if u.tab != pairsTab || u.asked != 2 {
		t.Errorf("table %d, connections asked for %d times", u.tab, u.asked)
	}
	for _, key := range []string{"q", "ctrl+c"} {
		u.quit = false
		if u.press(key); !u.quit {
			t.Errorf("%s does not quit", key)
		}
	}
	u.quit = false
	u.press("/", "ctrl+c")
	if !u.quit {
		t.Error("ctrl+c does not quit while a filter is typed")
	}
}

// A filter is typed, changed and taken away.
func TestFilter(t *testing.T) {
	u := newUser(t, false)
	u.fill()
	u.press("/", "q", "backspace", "PAUSEDx", "backspace", "enter")
	if got := u.rows(); len(got) != 1 || got[0].key != "c" || u.quit {
		t.Errorf("rows %+v", got)
	}
	u.press("enter", "esc") // of the detail, which leaves the filter
	if len(u.rows()) != 1 {
		t.Errorf("rows %+v", u.rows())
	}
	u.press("esc")
	if len(u.rows()) != 4 {
		t.Errorf("rows %+v", u.rows())
	}
}

// The row that is chosen is among those that are shown, also of many, and when it is gone.
func TestScrolling(t *testing.T) {
	u := newUser(t, false)
	u.send(tea.WindowSizeMsg{Width: 60, Height: 12})
	many := func(n int) observed {
		o := observed{of: &live.Map{}, sample: &live.Sample{}}
		for i := range n {
			o.of.Nodes = append(o.of.Nodes, live.Node{Name: fmt.Sprintf("h%03d", i)})
			o.sample.Nodes = append(o.sample.Nodes, live.NodeSample{State: "ready", Out: float64(1000 - i)})
		}
		return o
	}
	u.send(many(500))
	for _, c := range []struct{ key, want string }{
		{"down", "h001"}, {"pgdown", "h007"}, {"end", "h499"}, {"up", "h498"}, {"pgup", "h492"}, {"home", "h000"}, {"up", "h000"}, {"end", "h499"},
	} {
		u.press(c.key)
		if got := u.row1(); got != c.want {
			t.Errorf("%s: %s is chosen, want %s\n%s", c.key, got, c.want, u.text())
		}
	}
	u.send(many(300))
	if got := u.row1(); got != "h299" {
		t.Errorf("once it is gone: %s, want h299\n%s", got, u.text())
	}
	u.send(observed{of: &live.Map{}, sample: &live.Sample{}})
	if !strings.Contains(u.text(), "there are none") {
		t.Error(u.text())
	}
	for _, size := range [][2]int{{1, 1}, {0, 0}, {5, 3}, {300, 100}} { // nothing panics
		u.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		u.send(pairLab())
		for range tabs {
			u.press("tab", "enter", "?")
			for _, l := range append(u.screen(), strings.Split(u.View().Content, "\n")...) {
				if n := utf8.RuneCountInString(l); n > size[0] {
					t.Errorf("%v: %d columns: %q", size, n, l)
				}
			}
			u.press("?", "enter")
		}
	}
}

// Nothing that a lab says controls the terminal, and colours say nothing that marks do not.
func TestHostile(t *testing.T) {
	const evil = "x\x1b[31m\x1b]0;t\x07\r\n\u009b2J\x00\xff"
	u := newUser(t, false)
	u.model.lab = evil
	o := pairLab()
	for i := range o.of.Nodes {
		o.of.Nodes[i].Name, o.of.Nodes[i].Kind = evil, evil
	}
	for i := range o.of.Links {
		o.of.Links[i].Endpoints = [2]string{evil, evil}
		o.sample.Links[i].Ends[0].Set = []string{evil}
	}
	for i := range o.sample.Workloads {
		o.sample.Workloads[i].Name = evil
	}
	o.of.Flows[0].Workload, o.of.Flows[0].From = evil, 0
	o.sample.State, o.sample.Nodes[0].State, o.sample.Nodes[1].Health = evil, evil, evil
	u.send(o)
	u.send(happened{Kind: evil, Text: evil, Node: evil})
	u.send(connected{list: []adapter.Connection{{Node: evil, Type: evil, State: evil, Local: evil, Remote: evil, Process: evil, Transport: evil}}})
	check := func() {
		t.Helper()
		for _, l := range u.screen() {
			if i := strings.IndexFunc(l, unicode.IsControl); i >= 0 || !utf8.ValidString(l) {
				t.Errorf("%q", l)
			}
		}
	}
	for range tabs {
		check()
		u.press("enter")
		check()
		u.press("c")
		check()
		u.press("/")
		u.send(tea.PasteMsg{Content: evil})
		check()
		u.press("esc", "tab")
	}
	for _, msg := range []tea.Msg{changed{command: evil, text: evil}, changed{command: evil, err: errors.New(evil)}, observed{err: errors.New(evil)}} {
		u.send(msg)
		check()
	}

	plain, colored := newUser(t, false), newUser(t, true)
	for range tabs {
		for _, key := range []string{"enter", "esc", "tab"} {
			for _, one := range []*user{plain, colored} {
				one.fill()
				one.press(key)
			}
			if got := uncolored(colored.text()); got != plain.text() || got == colored.text() {
				t.Errorf("with colours:\n%s\nwithout:\n%s", got, plain.text())
			}
		}
	}
}

// uncolored returns text without SGR attributes.
func uncolored(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

// An observation that fails is said, and no longer when the next one does not.
func TestNoObservation(t *testing.T) {
	u := newUser(t, false)
	u.fill()
	u.send(observed{err: errors.New("the lab does not answer")})
	if !strings.Contains(u.text(), "! the lab does not answer") || u.observed != 2 {
		t.Errorf("observed %d times\n%s", u.observed, u.text())
	}
	u.send(pairLab())
	if strings.Contains(u.text(), "does not answer") {
		t.Error(u.text())
	}
}

// A trend has the last rates, the newest to the right.
func TestTrend(t *testing.T) {
	trends := trends{}
	for i := range keptValues + 8 {
		o := pairLab()
		o.sample.Nodes = o.sample.Nodes[:1]
		o.sample.Nodes[0].Out, o.sample.Nodes[0].In = float64(i), 0
		trends.add(o.of, o.sample)
	}
	if got := trends[nodesTab]["a"].line(8); got != "▇▇▇▇▇███" {
		t.Errorf("trend %q", got)
	}
	short := &trend{values: [keptValues]float32{0, 1, 50, 100}, next: 4, count: 4}
	if got := short.line(6); got != "   ▁▄█" {
		t.Errorf("trend %q", got)
	}
	if (*trend)(nil).line(3) != "" {
		t.Error("none has a line")
	}
	o := pairLab()
	o.sample.Nodes = nil
	if trends.add(o.of, o.sample); len(trends[nodesTab]) != 0 {
		t.Error("what is gone has a trend")
	}
}

// BenchmarkScreen measures what a sample of 500 nodes costs.
func BenchmarkScreen(b *testing.B) {
	o := observed{of: &live.Map{}, sample: &live.Sample{}}
	for i := range 500 {
		o.of.Nodes = append(o.of.Nodes, live.Node{Name: fmt.Sprintf("h%d", i)})
		o.sample.Nodes = append(o.sample.Nodes, live.NodeSample{State: "ready", Out: float64(i)})
		o.of.Links = append(o.of.Links, live.Link{Endpoints: [2]string{fmt.Sprintf("h%d:eth0", i), fmt.Sprintf("s:p%d", i)}})
		o.sample.Links = append(o.sample.Links, live.LinkSample{Up: true})
	}
	u := newUser(b, true)
	u.send(tea.WindowSizeMsg{Width: 120, Height: 40})
	for b.Loop() {
		u.send(o)
		_ = u.View()
	}
}
