package page

import (
	"crypto/sha256"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/chromium"
	"github.com/ndklab/ndklab/internal/fabric/event"
)

var screenshots = flag.String("screenshots", "", "a folder in which to keep pictures of the page")

// keep keeps a picture of the page in the folder that -screenshots names.
func keep(t *testing.T, b *chromium.Browser, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	b.Painted()
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), b.Picture(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// quiet reports whatever the page has logged, which what its policy refuses is a part of, and what it has asked for elsewhere.
func quiet(t *testing.T, b *chromium.Browser, f *fixture) {
	t.Helper()
	for _, c := range b.Complaints(func(url string) bool {
		return strings.HasPrefix(url, f.url) || strings.HasPrefix(url, "ws"+strings.TrimPrefix(f.url, "http"))
	}) {
		t.Error(c)
	}
}

// shown opens the page and waits until the map and as many samples are there as the fixture has.
func (f *fixture) shown(b *chromium.Browser) {
	f.t.Helper()
	b.Open(f.url)
	f.seen(b)
}

// seen waits until the page has the newest sample.
func (f *fixture) seen(b *chromium.Browser) {
	f.t.Helper()
	b.Until(fmt.Sprintf(`window.ndklab && ndklab.view.history.map && (ndklab.view.end >= %d)`, f.seconds))
	b.Painted()
}

// dist is built of the sources as they are: `make page` builds it.
func TestBuilt(t *testing.T) {
	if _, err := os.Stat("src"); err != nil {
		t.Skip("the tests run without the repository")
	}
	var sums strings.Builder
	sources := []string{"build.mjs", "package-lock.json", "package.json"}
	if err := filepath.WalkDir("src", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			sources = append(sources, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(sources, "tsconfig.json") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), path)
	}
	built, err := fs.ReadFile(Files(), "SOURCES.sha256")
	if err != nil || string(built) != sums.String() {
		t.Errorf("dist is not built of these sources: run `make page` (%v)\n got: %s\nwant: %s", err, built, sums.String())
	}
}

// racks is the fixture of 64 nodes in which this and that has happened.
func racks(t testing.TB) *fixture {
	f := newFixture(t, leafSpine(t, 4, 4, 14))
	f.details()
	for range 130 {
		f.sample()
	}
	f.event(3, event.LabReady, "the lab is ready", event.Event{})
	f.event(60, event.LinkChanged, "link h1-1:eth0 - leaf1:down1 is set: loss=2%", event.Event{Link: "h1-1:eth0"})
	f.event(80, event.LinkChanged, "link h1-1:eth0 - leaf1:down1 is reset", event.Event{Link: "h1-1:eth0"})
	f.event(100, event.NodePaused, "node h2-3 is paused", event.Event{Node: "h2-3"})
	f.event(110, event.NodeDown, "node h3-1 is down: killed", event.Event{Node: "h3-1"})
	f.event(120, event.LinkChanged, "link leaf1:up1 - spine1:leaf1 is cut", event.Event{Link: "leaf1:up1"})
	f.event(125, event.WorkloadProgress, "workload bulk: messages: 4334", event.Event{Workload: "bulk"})
	f.state["h2-3"], f.state["h3-1"] = "paused", "down"
	f.mu.Lock()
	f.broken = "leaf1:up1"
	f.mu.Unlock()
	f.sample()
	return f
}

//go:embed testdata/axe/axe.min.js
var axe string

// inspect returns what is wrong with the page as it is shown: too wide, ids given twice, and whatever axe-core finds.
const inspect = `(async () => {
	const wrong = [];
	if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is " + document.documentElement.scrollWidth + " pixels wide, of " + innerWidth);
	const found = await axe.run(document, { resultTypes: ["violations"] });
	for (const v of found.violations) wrong.push(v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120) + " " + (n.any[0] ? n.any[0].message.slice(0, 160) : "")).join(" | "));
	return wrong;
})()`

// views have an expression each that brings a view about, and one that is true when it is there.
var views = []struct{ name, show, there string }{
	{"lab", `ndklab.view.select({ kind: "lab" })`, `document.querySelector("#panel table")`},
	{"nodes", tab("Nodes"), `document.querySelectorAll("#panel tr").length > 60`},
	{"links", tab("Links"), `document.querySelectorAll("#panel tr").length > 60`},
	{"node", `ndklab.view.select({ kind: "node", node: "h1-1" })`, `document.querySelector("#panel .facts dd")`},
	{"connections", tab("Connections"), `document.querySelector("#panel table")`},
	{"counters", tab("Counters"), `document.querySelectorAll("#panel table").length === 2`},
	{"adapter", tab("Adapter"), `document.querySelectorAll("#panel table").length === 3`},
	{"log", tab("Log"), `document.querySelector("#panel pre")`},
	{"link", `ndklab.view.select({ kind: "link", link: ndklab.view.history.map.lab.links[0].endpoints[0] })`, `document.querySelectorAll("#panel canvas").length === 2`},
	{"change", tab("Change"), `document.querySelector("#panel form")`},
	{"packets", tab("Packets"), `document.querySelectorAll("#panel tr").length > 100`},
	{"qp", `ndklab.view.select({ kind: "qp", node: "h1-1", qpn: 17 })`, `document.querySelector("#panel .chart canvas")`},
	{"held", `ndklab.view.select({ kind: "lab" }); ndklab.view.go(60)`, `document.querySelector("#play").textContent.includes("Follow")`},
	{"commands", `[...document.querySelectorAll("#lower [role=tab]")][1].click()`, `!document.querySelector("#commands-box").hidden`},
	{"help", `document.querySelector("#help-open").click()`, `document.querySelector("#help").open`},
}

func tab(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#panel [role=tab]")].find(t => t.textContent === %q).click()`, name)
}

// Each view is within its width on a telephone and on a desk, light and dark; axe-core finds nothing wrong with it; it
// asks for nothing elsewhere and logs nothing.
func TestViews(t *testing.T) {
	f := racks(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range [][2]int{{360, 780}, {1600, 1000}} {
			t.Run(fmt.Sprintf("%s/%d", scheme, size[0]), func(t *testing.T) {
				b := chromium.Start(t)
				b.Look(size[0], size[1], scheme)
				f.shown(b)
				b.Eval(axe+";0", nil)
				for _, v := range views {
					b.Eval(v.show, nil)
					b.Until(v.there)
					b.Painted()
					var wrong []string
					b.Eval(inspect, &wrong)
					for _, w := range wrong {
						t.Errorf("%s: %s", v.name, w)
					}
					keep(t, b, fmt.Sprintf("%s-%s-%d", v.name, scheme, size[0]))
				}
				quiet(t, b, f)
			})
		}
	}
}

// Between a telephone and a wall nothing is wider than the window.
func TestWidths(t *testing.T) {
	b := chromium.Start(t)
	f := racks(t)
	for _, width := range []int{480, 720, 999, 1000, 2560} {
		b.Look(width, 1200, "light")
		f.shown(b)
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("the page is %d pixels wide, of %d", wide, width)
		}
		keep(t, b, fmt.Sprintf("lab-%d", width))
	}
	quiet(t, b, f)
}

// A link is found, cut and healed by keys alone: throughput falls on the plot, each command is listed, and Ctrl-Z undoes.
func TestCut(t *testing.T) {
	b := chromium.Start(t)
	f := newFixture(t, mapOf(t, pair))
	f.details()
	b.Look(1400, 900, "light")
	for range 5 {
		f.sample()
	}
	f.shown(b)
	throughput := func(plot string) (v float64) {
		t.Helper()
		b.Eval(fmt.Sprintf(`(d => d[1][d[1].length - 1])(ndklab.plots.data(%q))`, plot), &v)
		return v
	}
	before := throughput("Throughput")
	if before < 1e9 {
		t.Fatalf("the plot has %g b/s", before)
	}
	b.Press("/")
	for _, c := range "client:eth0" {
		b.Press(string(c))
	}
	b.Press("Enter")
	b.Until(`document.querySelector("#panel-title").textContent === "client:eth0 – server:eth0"`)
	focus := func(text string) {
		t.Helper()
		for range 40 { // as many stops as there may be before
			b.Press("Tab")
			var at string
			if b.Eval(`document.activeElement.textContent`, &at); at == text {
				return
			}
		}
		t.Fatalf("Tab does not come to %q", text)
	}
	focus("Cut")
	b.Until(`document.querySelector("#panel .preview").textContent === "ndklab link down fixture/client:eth0"`)
	b.Press("Enter")
	f.until(func() bool { return len(f.changes) == 1 })
	f.sample()
	f.seen(b)
	if after := throughput("Throughput on the wire"); after != 0 {
		t.Errorf("after the cut the plot of the link has %g b/s", after)
	}
	b.Until(`document.querySelector("#commands code").textContent === "ndklab link down fixture/client:eth0" && !document.querySelector("#undo").disabled`)
	b.Until(`ndklab.map.label("client:eth0") === "✕ cut"`)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "rawKeyDown", "key": "z", "windowsVirtualKeyCode": 90, "modifiers": 2}, nil)
	b.Until(`document.querySelector("#commands code").textContent === "ndklab link up fixture/a:eth0" && document.querySelector("#undo").disabled`)
	b.Press("Escape")
	b.Painted()
	if after := throughput("Throughput"); after != 0 {
		t.Errorf("after the cut the plot of the lab has %g b/s", after)
	}
	keep(t, b, "cut")
	quiet(t, b, f)
}

// Sliders and fields of a link are one change, whose command is shown before it is made.
func TestSettings(t *testing.T) {
	b := chromium.Start(t)
	f := newFixture(t, mapOf(t, pair))
	f.details()
	f.sample()
	b.Look(1400, 900, "light")
	f.shown(b)
	b.Eval(`ndklab.view.select({ kind: "link", link: "client:eth0" })`, nil)
	b.Until(`document.querySelector("#panel-title").textContent.startsWith("client:eth0")`)
	b.Eval(tab("Change"), nil)
	b.Eval(`document.querySelector("#set-loss").focus()`, nil)
	b.Press("ArrowRight")
	b.Press("ArrowRight")
	b.Eval(`document.querySelector("#direction").value = "server"; document.querySelector("#direction").dispatchEvent(new Event("change"))`, nil)
	b.Until(`[...document.querySelectorAll("#panel .preview")].some(p => p.textContent.includes("loss=0.1%"))`)
	b.Eval(`[...document.querySelectorAll("#panel button")].find(e => e.textContent === "Apply").click()`, nil)
	f.until(func() bool { return len(f.changes) == 1 })
	if got, want := fmt.Sprint(f.changes), "[{set client:eth0 server [loss=0.1%]  [] }]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	quiet(t, b, f)
}

// An event that is chosen moves the page to its time and to what it is about; the space bar follows again, and a page
// that nobody sees asks for nothing.
func TestTime(t *testing.T) {
	b := chromium.Start(t)
	f := racks(t)
	b.Look(1400, 900, "light")
	f.shown(b)
	b.Until(`document.querySelectorAll("#events button").length === 6`)
	b.Eval(`document.querySelector("#progress").click()`, nil)
	b.Until(`document.querySelectorAll("#events button").length === 7`)
	b.Eval(`[...document.querySelectorAll("#events button")].find(e => e.textContent.includes("loss=2%")).click()`, nil)
	b.Until(`document.querySelector("#now").textContent === "60.0 s" && document.querySelector("#panel-title").textContent.startsWith("h1-1:eth0")`)
	b.Eval(`document.activeElement.blur()`, nil)
	b.Press("ArrowRight")
	b.Until(`document.querySelector("#now").textContent === "61.0 s"`)
	b.Eval(`document.querySelector("#panel [role=tab]").focus()`, nil) // which has arrows for itself
	b.Press("ArrowRight")
	b.Until(`document.querySelector("#now").textContent === "61.0 s" && document.activeElement === document.querySelectorAll("#panel [role=tab]")[1]`)
	b.Press("Escape")
	b.Until(`document.querySelector("#panel-title").textContent === "The lab" && document.activeElement.id === "panel"`)
	b.Press(" ")
	b.Until(`document.querySelector("#now").textContent === "2:11.0"`)
	hide := func(hidden bool) {
		b.Eval(fmt.Sprintf(`Object.defineProperty(document, "hidden", { value: %v, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil)
	}
	hide(true)
	f.until(func() bool { return f.streams == 0 })
	hide(false)
	f.until(func() bool { return f.streams == 1 })
	f.sample()
	f.seen(b)
	var frames int
	if b.Eval(`ndklab.view.history.frames.length`, &frames); frames != f.seconds {
		t.Errorf("the page has %d samples of %d", frames, f.seconds)
	}
	quiet(t, b, f)
}

// Of two runs that are over both are on the plots, at the same times, and nothing can be changed. It plays to its end.
func TestReplay(t *testing.T) {
	b := chromium.Start(t)
	one, two := mapOf(t, pair), mapOf(t, pair)
	one.Replay, two.Replay, one.Runs = true, true, 2
	f := newFixture(t, one, two)
	for range 12 {
		f.sample()
	}
	b.Look(1400, 900, "light")
	f.shown(b)
	b.Until(`ndklab.view.runs[1].frames.length === 12`)
	b.Painted()
	var columns int
	if b.Eval(`ndklab.plots.data("Throughput").length`, &columns); columns != 3 {
		t.Errorf("the plot has %d columns, want the time and two runs", columns)
	}
	b.Until(`document.querySelector("#now").textContent === "1.0 s" && !document.querySelector("#second").hidden`)
	b.Eval(`ndklab.view.select({ kind: "link", link: "client:eth0" })`, nil)
	b.Until(`document.querySelector("#panel [role=tab]").textContent === "Settings" && !document.querySelector("#panel .actions")`)
	b.Eval(`ndklab.view.go(11.9)`, nil)
	b.Press(" ")
	b.Until(`document.querySelector("#now").textContent === "12.0 s" && document.querySelector("#play").textContent.includes("Play")`)
	keep(t, b, "replay")
	quiet(t, b, f)
}

// The names of a lab and its texts are text, never markup or script.
func TestHostile(t *testing.T) {
	b := chromium.Start(t)
	for _, text := range []string{
		`<script>window.hit = 1</script><img src=x onerror="window.hit = 1">`, `"><svg onload="window.hit = 1">`, `javascript:window.hit=1`,
		"]]>\x00\x1b[31m\u202e\u2067abc\u2028</title>", strings.Repeat("long-", 40), "__proto__", "data(label)",
	} {
		f := newFixture(t, hostile(text))
		f.details()
		f.detail["node"] = map[string]any{"node": map[string]any{"name": text, "state": text, "reason": text, "kind": text, "counters": map[string]any{text: 1}}, "log": []string{text},
			"connections": []map[string]any{{"local": text, "remote": text, "state": text, "qpn": 17, "process": text}}}
		f.state[text+"0"] = text
		f.sample()
		f.event(1, text, text, event.Event{Node: text + "0"})
		for _, width := range []int{360, 1400} {
			b.Look(width, 900, "light")
			f.shown(b)
			b.Until(`document.querySelector("#events button")`)
			b.Eval(`ndklab.view.select({ kind: "node", node: ndklab.view.history.map.lab.nodes[0].name })`, nil)
			b.Until(`document.querySelector("#panel .actions")`)
			for _, name := range []string{"Connections", "Counters", "Log", "Links"} {
				b.Eval(tab(name), nil)
				b.Painted()
			}
			b.Eval(`document.querySelector("#search").focus(); document.querySelector("#search").value = ":"; document.querySelector("#search").dispatchEvent(new Event("input"))`, nil)
			b.Painted()
			var got struct {
				Hit, Wide bool
				Foreign   int
			}
			b.Eval(`({ hit: "hit" in window, wide: document.documentElement.scrollWidth > innerWidth,
				foreign: document.querySelectorAll("img, svg, iframe, object, embed, base, style, script:not([src='assets/app.js'])").length })`, &got)
			if got.Hit || got.Wide || got.Foreign != 0 {
				t.Errorf("%q at %d: %+v", text, width, got)
			}
			quiet(t, b, f)
		}
	}
}

// BenchmarkMap measures what TestSizes holds within bounds, as a clock has it.
func BenchmarkMap(b *testing.B) {
	browser := chromium.Start(b)
	browser.Look(1600, 1000, "light")
	f := newFixture(b, leafSpine(b, 8, 31, 31))
	f.sample()
	var drawn, dragged float64
	for b.Loop() {
		begin := time.Now()
		f.shown(browser)
		drawn += time.Since(begin).Seconds()
		var rate float64
		browser.Mouse("mousePressed", 700, 330, 1)
		begin = time.Now()
		const pictures = 60
		for i := range pictures {
			browser.Mouse("mouseMoved", 700+float64(i*2), 330, 0)
			browser.Eval(`new Promise(done => requestAnimationFrame(() => done(true)))`, nil)
		}
		rate = pictures / time.Since(begin).Seconds()
		browser.Mouse("mouseReleased", 820, 330, 1)
		dragged += rate
	}
	b.ReportMetric(drawn/float64(b.N), "s/map")
	b.ReportMetric(dragged/float64(b.N), "pictures/s")
}

// A map of 2, 64 and 1,000 nodes has all of it: what is too small to be seen is drawn as its group.
// It takes less than a second of a processor to draw, and a thirtieth for each picture while it is dragged: the best of
// several, which a busy machine does not spoil.
func TestSizes(t *testing.T) {
	b := chromium.Start(t)
	b.Look(1600, 1000, "light")
	b.Call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	busy := func() float64 {
		var m struct {
			Metrics []struct {
				Name  string
				Value float64
			}
		}
		b.Call("Performance.getMetrics", nil, &m)
		for _, x := range m.Metrics {
			if x.Name == "TaskDuration" {
				return x.Value
			}
		}
		t.Fatal("the browser does not say how long it is busy")
		return 0
	}
	for _, c := range []struct {
		name                 string
		f                    *fixture
		nodes, links, groups int // drawn
	}{
		{"pair", newFixture(t, mapOf(t, pair)), 2, 1, 0},
		{"racks", newFixture(t, leafSpine(t, 4, 4, 14)), 64, 72, 4},
		{"thousand", newFixture(t, leafSpine(t, 8, 31, 31)), 39, 8*31 + 31, 31},
	} {
		drawn, dragged := 99.0, 99.0
		c.f.sample()
		for range 3 {
			b.Open("about:blank")
			before := busy()
			c.f.shown(b)
			drawn = min(drawn, busy()-before)
			before = busy()
			b.Mouse("mousePressed", 700, 330, 1)
			const pictures = 30
			for i := range pictures {
				b.Mouse("mouseMoved", 700+float64(i*4), 330+float64(i), 0)
				b.Eval(`new Promise(done => requestAnimationFrame(() => done(true)))`, nil)
			}
			dragged = min(dragged, (busy()-before)/pictures)
			b.Mouse("mouseReleased", 820, 360, 1)
		}
		var got struct{ Nodes, Links, Groups int }
		b.Eval(`ndklab.map.count`, &got)
		if got.Nodes != c.nodes || got.Links != c.links || got.Groups != c.groups {
			t.Errorf("%s: drawn are %+v, want %d, %d, %d", c.name, got, c.nodes, c.links, c.groups)
		}
		t.Logf("%s: %.0f ms to draw, %.1f ms a picture", c.name, 1000*drawn, 1000*dragged)
		if drawn > 1 || dragged > 1.0/30 {
			t.Errorf("%s: %.2f s to draw, %.3f s a picture", c.name, drawn, dragged)
		}
		keep(t, b, "size-"+c.name)
		c.f.details()
		if c.name == "thousand" { // opened, all of it is there
			b.Eval(`ndklab.map.show({ kind: "node", node: "h3-3" }); ndklab.view.select({ kind: "node", node: "h3-3" })`, nil)
			b.Painted()
			if b.Eval(`ndklab.map.count`, &got); got.Nodes != 1000 || got.Links != 31*31+8*31 {
				t.Errorf("opened, drawn are %+v", got)
			}
			keep(t, b, "size-opened")
		}
		quiet(t, b, c.f)
	}
}
