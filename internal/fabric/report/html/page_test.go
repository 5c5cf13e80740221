package html

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ndklab/ndklab/internal/chromium"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
)

var screenshots = flag.String("screenshots", "", "a folder in which to keep pictures of the pages")

// inspect finds what is wrong with a page that is shown: too wide, plots that are empty, links to
// nothing, ids given twice, and text that is hard to read (less contrast than WCAG 2.2, 1.4.3 wants: 4.5, or 3
// for large text).
const inspect = `(() => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) wrong.push("the page is " + root.scrollWidth + " pixels wide, of " + innerWidth);
  const seen = new Set();
  for (const e of document.querySelectorAll("[id]")) { if (seen.has(e.id)) wrong.push("two of " + e.id); seen.add(e.id); }
  for (const a of document.querySelectorAll("a[href]")) {
    const to = a.getAttribute("href");
    if (!to.startsWith("#") || !seen.has(to.slice(1))) wrong.push("a link to " + to);
  }
  for (const f of document.querySelectorAll("details[open] figure[data-plot]")) {
    const c = f.querySelector("canvas");
    if (!c) { wrong.push(f.dataset.plot + " is not drawn"); continue; }
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, colours = new Set();
    for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) colours.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
    const plot = f.querySelector(".chart").plot;
    for (const s of plot.series.slice(1)) {
      const own = s.stroke().slice(1), n = parseInt(own, 16);
      if (!colours.has(n)) wrong.push(f.dataset.plot + ": no pixel of " + s.label + " (#" + own + ")");
    }
    if (f.getBoundingClientRect().width < c.getBoundingClientRect().width) wrong.push(f.dataset.plot + " is wider than its place");
    if (!f.querySelector("[role=img]").getAttribute("aria-label")) wrong.push(f.dataset.plot + " has no words");
  }
  const one = document.createElement("canvas"); one.width = one.height = 1;
  const ctx = one.getContext("2d", { willReadFrequently: true });
  const over = (under, colour) => { // a colour painted on another
    ctx.globalCompositeOperation = "copy"; ctx.fillStyle = "rgb(" + under.slice(0, 3).join(",") + ")"; ctx.fillRect(0, 0, 1, 1);
    ctx.globalCompositeOperation = "source-over"; ctx.fillStyle = colour; ctx.fillRect(0, 0, 1, 1);
    return [...ctx.getImageData(0, 0, 1, 1).data];
  };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = e => { const up = e ? back(e.parentElement) : [255, 255, 255]; return e ? over(up, getComputedStyle(e).backgroundColor) : up; };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), told = new Set();
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement;
    if (!n.data.trim() || e.closest("svg, script, style") || !e.checkVisibility()) continue;
    const s = getComputedStyle(e), under = back(e), a = light(over(under, s.color)), b = light(under);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && s.fontWeight >= 700;
    const key = s.color + under;
    if (contrast < (large ? 3 : 4.5) && !told.has(key)) { told.add(key); wrong.push("contrast " + contrast.toFixed(2) + ": " + n.data.trim().slice(0, 40)); }
    if (size < 11) { if (!told.has(size)) wrong.push("text of " + size + " pixels: " + n.data.trim().slice(0, 40)); told.add(size); }
  }
  return wrong;
})()`

func written(t *testing.T, s *report.Suite) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(f, s); err != nil {
		t.Fatal(err)
	}
	return path
}

// quiet reports whatever a page has logged, and whatever it has asked the network for.
func quiet(t *testing.T, b *chromium.Browser, path string) {
	t.Helper()
	for _, c := range b.Complaints(func(url string) bool { return url == "file://"+path }) {
		t.Error(c)
	}
}

// keep keeps a picture in the folder that -screenshots names.
func keep(t *testing.T, name string, data func() []byte) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name), data(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A page is drawn, readable and within its width on a telephone and on a desk, light and dark; it asks
// the network for nothing, and logs nothing.
func TestPage(t *testing.T) {
	b := chromium.Start(t)
	for name, s := range map[string]*report.Suite{
		"suite": suite(), "incast": {Labs: []*report.Run{sample.Incast(), sample.Ring()}}, "empty": {Passed: true}, "bare": {Labs: []*report.Run{{Lab: "bare"}}},
	} {
		path := written(t, s)
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{360, 1600} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, scheme, width), func(t *testing.T) {
					b.For(t)
					b.Look(width, 900, scheme)
					b.Open("file://" + path)
					b.Eval(`document.querySelectorAll("details").forEach(d => d.open = true)`, nil)
					b.Painted()
					var wrong []string
					b.Eval(inspect, &wrong)
					for _, w := range wrong {
						t.Error(w)
					}
					quiet(t, b, path)
					keep(t, fmt.Sprintf("%s-%s-%d.png", name, scheme, width), b.Picture)
				})
			}
		}
	}
	b.For(t)
}

// Names and the output of programs are text, never markup or script, in the page, its picture and its data.
func TestHostile(t *testing.T) {
	b := chromium.Start(t)
	for i, text := range []string{
		`<script>window.hit = 1</script><img src=x onerror="window.hit = 1">`,
		`"><svg onload="window.hit = 1">`, `</script></style></title><script>window.hit = 1</script>`, `' onmouseover='window.hit = 1' x='`,
		"]]>\x00\x1b[31m\u202eabc\u2028\xff</details></section></body>", `javascript:window.hit=1`, `{{.}}${window.hit = 1}` + "`",
	} {
		path := written(t, &report.Suite{Labs: []*report.Run{sample.Hostile(text)}, NotRun: []string{text}})
		b.Look(1600, 900, "light")
		b.Open("file://" + path)
		b.Eval(`document.querySelectorAll("details").forEach(d => d.open = true)`, nil)
		b.Painted()
		var got struct {
			Hit      bool
			Foreign  int
			Handlers int
			Sections int
			Plots    int
		}
		b.Eval(`({
			hit: "hit" in window,
			foreign: document.querySelectorAll("img, iframe, object, embed, base, form, input, script:not([type='application/json'])").length - 2,
			handlers: [...document.querySelectorAll("*")].flatMap(e => [...e.attributes]).filter(a => a.name.startsWith("on") || /^\s*javascript:/i.test(a.value) && a.name === "href").length,
			sections: document.querySelectorAll("main > details > .sections > section").length,
			plots: document.querySelectorAll("canvas").length,
		})`, &got)
		if got.Hit || got.Foreign != 0 || got.Handlers != 0 || got.Sections != 7 || got.Plots != 8 {
			t.Errorf("%d: %q: %+v", i, text, got)
		}
		quiet(t, b, path)
	}
}

// A link to something in a folded lab unfolds it; on paper all is open and light.
func TestFolds(t *testing.T) {
	b := chromium.Start(t)
	s := suite()
	path := written(t, s)
	b.Look(1000, 900, "dark")
	b.Open("file://" + path)
	const open = `[...document.querySelectorAll("main > details")].map(d => d.open)`
	var states []bool
	if b.Eval(open, &states); len(states) != 3 || !states[0] || states[1] || !states[2] {
		t.Errorf("labs are open: %v; those are wanted that failed", states)
	}
	b.Eval(`new Promise(done => { addEventListener("hashchange", () => requestAnimationFrame(() => done(true))); location.hash = "lab1-w0"; })`, nil)
	if b.Eval(open, &states); !states[1] {
		t.Error("the link does not open the lab")
	}
	b.Eval(`document.querySelectorAll("details").forEach(d => d.open = false)`, nil)
	var pdf struct {
		Data []byte `json:"data"`
	}
	b.Eval(`window.paper = []; new MutationObserver(() => window.paper.push({
			folded: document.querySelectorAll("details:not([open])").length,
			page: getComputedStyle(document.documentElement).getPropertyValue("--surface"),
		})).observe(document.documentElement, { attributeFilter: ["class"] }); 1`, nil)
	b.Call("Page.printToPDF", map[string]any{"printBackground": true}, &pdf)
	keep(t, "suite.pdf", func() []byte { return pdf.Data })
	var paper []struct {
		Folded int
		Page   string
	}
	if b.Eval(`window.paper`, &paper); len(paper) == 0 || paper[0].Folded != 0 || paper[0].Page != "#ffffff" {
		t.Errorf("when it was printed: %+v", paper)
	}
	if b.Eval(open, &states); states[0] {
		t.Error("labs stay open after printing")
	}
	quiet(t, b, path)
}

// Dragging over a plot zooms all plots over time of its lab, a double click shows all again; the pointer
// at a mark names the event; a button changes the scale.
func TestInteraction(t *testing.T) {
	b := chromium.Start(t)
	path := written(t, &report.Suite{Labs: []*report.Run{sample.Flap()}})
	b.Look(1600, 900, "light")
	b.Open("file://" + path)
	b.Painted()
	var place struct{ X, Y, Width, Height, Mark float64 }
	b.Eval(`(() => {
		const f = document.querySelector("figure[data-plot=throughput]"), o = f.querySelector(".u-over");
		o.scrollIntoView({ behavior: "instant", block: "center" });
		const r = o.getBoundingClientRect();
		return { x: r.x, y: r.y, width: r.width, height: r.height, mark: r.x + f.querySelector(".chart").plot.valToPos(4, "x") };
	})()`, &place)
	mouse := func(kind string, x float64, clicks int) {
		t.Helper()
		b.Call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": place.Y + place.Height/2, "button": "left", "clickCount": clicks, "buttons": 1}, nil)
	}
	const scales = `[...document.querySelectorAll(".time figure .chart")].map(c => [c.plot.scales.x.min, c.plot.scales.x.max])`
	var shown [][2]float64
	mouse("mouseMoved", place.Mark+2, 0)
	b.Painted()
	var said string
	if b.Eval(`document.querySelector("figure[data-plot=throughput] .said").textContent`, &said); said != "4: at 4.000 s, link-down: link a:eth0 - sw:eth0 is down" {
		t.Errorf("at the mark of an event the page says %q", said)
	}
	var lit string
	if b.Eval(`document.querySelector("tr.lit").id`, &lit); lit != "lab0-e3" {
		t.Errorf("the row %q is lit", lit)
	}
	mouse("mousePressed", place.X+place.Width/4, 1)
	mouse("mouseMoved", place.X+place.Width/3, 0)
	mouse("mouseMoved", place.X+place.Width/2, 0)
	mouse("mouseReleased", place.X+place.Width/2, 1)
	b.Painted()
	b.Eval(scales, &shown)
	for _, s := range shown {
		if math.Abs(s[0]-3) > 0.1 || math.Abs(s[1]-6) > 0.1 {
			t.Errorf("a plot shows %.3f s to %.3f s, and the second quarter of 12 s was wanted", s[0], s[1])
		}
	}
	for clicks := 1; clicks <= 2; clicks++ {
		mouse("mousePressed", place.X+place.Width/2, clicks)
		mouse("mouseReleased", place.X+place.Width/2, clicks)
	}
	b.Painted()
	if b.Eval(scales, &shown); shown[0] != [2]float64{0, 12} || shown[1] != shown[0] {
		t.Errorf("after a double click plots show %v", shown)
	}
	var pressed string
	b.Eval(`document.querySelector("figure[data-plot=throughput] button").click()`, nil)
	b.Painted()
	b.Eval(`document.querySelector("figure[data-plot=throughput] .chart").plot.scales.y.distr + document.querySelector("figure[data-plot=throughput] button").ariaPressed`, &pressed)
	if pressed != "3true" {
		t.Errorf("the scale and the button are %q", pressed)
	}
	quiet(t, b, path)
}
