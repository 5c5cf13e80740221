package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/chromium"
)

// In the page of the example lab a workload is started, and its link is cut: throughput falls on the plot. Undoing it
// heals the link; and a terminal runs commands in a node. All of it under the policy that the server serves the page with.
func TestInBrowser(t *testing.T) {
	b := chromium.Start(t)
	name := fmt.Sprintf("page-%d", os.Getpid())
	text, err := os.ReadFile("../../examples/pair.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pair.ndklab.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "name: pair\n", "name: "+name+"\n", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	lab := upFile(t, name, file)
	c := start(t, "ui", lab, "--no-open")
	url := c.url(t)
	b.Look(1400, 900, "light")
	b.Open(url)
	b.Until(`window.ndklab && ndklab.view.history.frames.length >= 2`)
	b.Eval(`ndklab.view.select({ kind: "node", node: "client" })`, nil)
	b.Until(`document.querySelector("#panel details")`)
	b.Eval(`document.querySelector("#panel details").open = true`, nil)
	b.Eval(`{
		const [size, duration] = document.querySelectorAll("#panel details input");
		size.value = "64KiB"; duration.value = "10m";
		[...document.querySelectorAll("#panel details button")].find(e => e.textContent === "Start").click();
	}`, nil)
	b.Until(`document.querySelector("#commands .good code")`)
	b.Eval(`ndklab.view.select({ kind: "link", link: "client:eth0" })`, nil)
	const last = `(d => d ? d[1][d[1].length - 1] : -1)(ndklab.plots.data("Throughput on the wire"))`
	b.Until(last + ` > 1e7`)
	press := func(button string) {
		t.Helper()
		b.Eval(fmt.Sprintf(`[...document.querySelectorAll("#panel .actions button")].find(e => e.textContent === %q).click()`, button), nil)
	}
	press("Cut")
	b.Until(fmt.Sprintf(`document.querySelector("#commands code").textContent === "ndklab link down %s/client:eth0"`, lab))
	b.Until(last + ` === 0 && ndklab.map.label("client:eth0") === "✕ down"`)
	b.Until(`[...document.querySelectorAll("#events button")].some(e => e.textContent.includes("is down"))`)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "rawKeyDown", "key": "z", "windowsVirtualKeyCode": 90, "modifiers": 2}, nil)
	b.Until(fmt.Sprintf(`document.querySelector("#commands code").textContent === "ndklab link up %s/client:eth0"`, lab))
	b.Until(`!ndklab.map.label("client:eth0").includes("✕")`)

	b.Eval(`ndklab.view.select({ kind: "node", node: "server" })`, nil)
	b.Until(`document.querySelector("#panel-title").textContent === "server"`)
	b.Eval(`[...document.querySelectorAll("#panel [role=tab]")].find(t => t.textContent === "Terminal").click()`, nil)
	b.Until(`document.activeElement.matches(".xterm textarea")`)
	for _, key := range "echo $((6*7))-there" {
		b.Press(string(key))
	}
	b.Press("Enter")
	b.Until(`document.querySelector(".xterm-rows").textContent.includes("42-there")`)
	var font string
	if b.Eval(`getComputedStyle(document.querySelector(".xterm-rows")).fontFamily`, &font); !strings.Contains(font, "monospace") {
		t.Errorf("the terminal's style is not applied: its letters are of %s", font)
	}
	for _, wrong := range b.Complaints(func(asked string) bool {
		return strings.HasPrefix(asked, url) || strings.HasPrefix(asked, "ws"+strings.TrimPrefix(url, "http"))
	}) {
		t.Error(wrong)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	b.Until(`/^ended/.test(document.querySelector("#state").textContent)`)
	c.ends(t, 0, "")
}
