package page

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ndklab/ndklab/internal/chromium"
)

// The rate that congestion control gives a queue pair, and the pauses of its node's ports, are on plots: live, and of a run that is
// over, at the time that is chosen. The ports have the class and who has paused it, from when they are paused on.
func TestQueuePairs(t *testing.T) {
	b := chromium.Start(t)
	for _, replay := range []bool{false, true} {
		m := mapOf(t, pair)
		m.Replay = replay
		f := newFixture(t, m)
		f.details()
		f.sample()
		f.sample()
		b.Look(1400, 900, "light")
		f.shown(b)
		last := func(plot string) (v []float64) {
			t.Helper()
			b.Eval(fmt.Sprintf(`ndklab.plots.data(%q).slice(1).map(c => c[c.length - 1])`, plot), &v)
			return v
		}
		want := func(plot string, values ...float64) {
			t.Helper()
			if got := last(plot); !slices.Equal(got, values) {
				t.Errorf("replay %v: the plot %q ends with %v, want %v", replay, plot, got, values)
			}
		}
		b.Eval(`ndklab.view.select({ kind: "node", node: "server" })`, nil)
		b.Until(`ndklab.plots.data("Paused by PFC")`)
		want("Paused by PFC", 0)
		b.Eval(tab("Queue pairs"), nil)
		b.Until(`document.querySelectorAll("#panel [role=tabpanel] td button, #panel [role=tabpanel] th button").length === 2`)
		f.sample()
		f.seen(b)
		b.Until(`ndklab.plots.data("Paused by PFC").length === 3`)
		want("Paused by PFC", 0.25, 0.125)
		want("Rates allowed, of all queue pairs", 5e9+float64(3<<20), 5e9)
		var keys string
		if b.Eval(`document.querySelector("[data-plot='Paused by PFC'] .keys").textContent`, &keys); keys != "server:eth0 class 3 by client:eth0 25 %server:eth0 class 4 by client:eth0 12.5 %" && !replay {
			t.Errorf("%q", keys)
		}
		b.Eval(`[...document.querySelectorAll("#panel [role=tabpanel] button")].find(e => e.textContent === "17").click()`, nil)
		b.Until(`document.querySelector("#panel-title").textContent === "Queue pair 17 of server" && ndklab.plots.data("Rate allowed")`)
		want("Rate allowed", 4e9+float64(3<<20), 5e9)
		want("Window", 65536)
		want("Packets sent again", 30)
		want("Paused by PFC", 0.25, 0.125)
		if replay { // nothing is asked for, and the figures are those of the time
			b.Eval(`ndklab.view.go(2)`, nil)
			b.Until(`document.querySelector("#panel dl").textContent.includes("20 /s")`)
		}
		b.Eval(`ndklab.view.select({ kind: "link", link: "client:eth0" })`, nil)
		b.Until(`ndklab.plots.data("Throughput on the wire")`)
		want("Paused by PFC", 0.25, 0.125)
		keep(t, b, fmt.Sprintf("pairs-%v", replay))
		quiet(t, b, f)
	}
}
