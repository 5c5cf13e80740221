// Package chromium has a headless Chromium for the tests of pages, driven by its DevTools protocol. It reaches this machine's
// loopback alone, and what a page logs or asks for elsewhere can be told.
//
// Start reading at Start, Browser.Open and Browser.Eval.
package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/need"
)

// A Browser is a headless Chromium, driven by its DevTools protocol over a pair of pipes
// (--remote-debugging-pipe): messages are JSON, each ended by a zero byte.
type Browser struct {
	t       testing.TB
	in      io.Writer
	out     *bufio.Reader
	id      int
	session string
	events  []message // since they were last taken
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// patience bounds the time that a browser may take for one test.
const patience = 4 * time.Minute

// Start starts Chromium with a page, or skips the test where there is none. It resolves no
// names, so that nothing outside could be reached.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		need.Check(t, errors.New("no Chromium on PATH: the Debian package chromium has one"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	ours, theirs, err := os.Pipe() // what we write
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(home, "profile"),
		"--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--force-color-profile=srgb")
	if os.Geteuid() == 0 {
		cmd.Args = append(cmd.Args, "--no-sandbox") // its sandbox refuses root
	}
	cmd.Args = append(cmd.Args, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	cmd.ExtraFiles = []*os.File{ours, write} // 3 and 4, as the protocol has them
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ours.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	b := &Browser{t: t, in: theirs, out: bufio.NewReader(read)}
	t.Cleanup(func() {
		b.session = ""
		_ = b.ask("Browser.close", nil, nil) // it may be gone before it answers
		_ = cmd.Wait()                       // its status says nothing
		cancel()
		if err := errors.Join(theirs.Close(), read.Close()); err != nil {
			t.Error(err)
		}
	})
	var target struct {
		TargetID  string `json:"targetId"`
		SessionID string `json:"sessionId"`
	}
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.Call(domain+".enable", nil, nil)
	}
	b.Call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	return b
}

// Call calls a method of the protocol and fails the test if it fails.
func (b *Browser) Call(method string, params, result any) {
	b.t.Helper()
	if err := b.ask(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *Browser) ask(method string, params, result any) error {
	b.id++
	request := map[string]any{"id": b.id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		m, err := b.receive()
		switch {
		case err != nil:
			return err
		case m.ID != b.id:
			b.events = append(b.events, m)
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
}

func (b *Browser) receive() (m message, err error) {
	text, err := b.out.ReadBytes(0)
	if err != nil {
		return m, fmt.Errorf("the browser is gone: %w", err)
	}
	return m, json.Unmarshal(text[:len(text)-1], &m)
}

// For has another test, of which this is a part or the other way round, fail from now on.
func (b *Browser) For(t testing.TB) { b.t = t }

// Open shows an address and waits until it is loaded, it and not the blank page before.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.events = nil
	var page struct {
		LoaderID string `json:"loaderId"`
	}
	b.Call("Page.navigate", map[string]any{"url": url}, &page)
	for seen := 0; ; seen++ {
		if seen == len(b.events) {
			m, err := b.receive()
			if err != nil {
				b.t.Fatal(err)
			}
			b.events = append(b.events, m)
		}
		var of struct {
			LoaderID string `json:"loaderId"`
			Name     string `json:"name"`
		}
		if e := b.events[seen]; e.Method == "Page.lifecycleEvent" && json.Unmarshal(e.Params, &of) == nil && of.LoaderID == page.LoaderID && of.Name == "load" {
			return
		}
	}
}

// Look sets what the reader has: a window's size in pixels, and a colour scheme. Nothing moves, so that colours are not measured
// on their way from one to another.
func (b *Browser) Look(width, height int, scheme string) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// Eval evaluates an expression, waits for it if it is a promise, and has its value.
func (b *Browser) Eval(expression string, value any) {
	b.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s\n%s", expression, r.ExceptionDetails)
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(r.Result.Value, value); err != nil {
		b.t.Fatalf("%s: %q: %v", expression, r.Result.Value, err)
	}
}

// Painted waits until what the page has set in motion is drawn.
func (b *Browser) Painted() {
	b.t.Helper()
	b.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, nil)
}

// Until waits until an expression is true.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	b.Eval(`new Promise(done => { const look = () => (`+expression+`) ? done(true) : setTimeout(look, 10); look(); })`, nil)
}

// Press presses a key, as KeyboardEvent.key names it, and lets it go. A character is typed.
func (b *Browser) Press(key string) {
	b.t.Helper()
	down := map[string]any{"type": "rawKeyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
	switch {
	case key == "Enter":
		down["type"], down["text"] = "keyDown", "\r"
	case len(key) == 1:
		down["type"], down["text"] = "keyDown", key
	}
	b.Call("Input.dispatchKeyEvent", down, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": codes[key]}, nil)
}

// codes are the numbers that browsers know keys by, of those that type nothing.
var codes = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}

// Mouse does something with the pointer, such as "mouseMoved", with its left button.
func (b *Browser) Mouse(kind string, x, y float64, clicks int) {
	b.t.Helper()
	b.Call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": clicks, "buttons": 1}, nil)
}

// Complaints returns what the page has logged since it was opened, and what it has asked the network for that may
// not be asked for.
func (b *Browser) Complaints(may func(url string) bool) (found []string) {
	b.t.Helper()
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening":
			found = append(found, fmt.Sprintf("%s: %s", e.Method, e.Params))
		case "Network.requestWillBeSent", "Network.webSocketCreated":
			var p struct {
				URL     string `json:"url"` // of a WebSocket
				Request struct {
					URL string `json:"url"`
				} `json:"request"`
			}
			if err := json.Unmarshal(e.Params, &p); err != nil {
				b.t.Fatal(err)
			}
			if url := p.URL + p.Request.URL; !may(url) && url != "data:," {
				found = append(found, fmt.Sprintf("the page asks for %q", url))
			}
		}
	}
	return found
}

// Picture returns the whole page as a PNG.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	var height, width int
	b.Eval(`document.documentElement.scrollHeight`, &height)
	b.Eval(`innerWidth`, &width)
	var r struct {
		Data []byte `json:"data"`
	}
	b.Call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}, &r)
	return r.Data
}
