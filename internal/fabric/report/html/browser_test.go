package html

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
	"strconv"
	"testing"
	"time"
)

// A browser is a headless Chromium, driven by its DevTools protocol over a pair of pipes
// (--remote-debugging-pipe): messages are JSON, each ended by a zero byte.
type browser struct {
	t       *testing.T
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

// newBrowser starts Chromium with a page, or skips the test where there is none. It resolves no
// names, so that nothing outside could be reached.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium on PATH: the Debian package chromium has one")
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
		"--host-resolver-rules=MAP * ~NOTFOUND", "--force-color-profile=srgb")
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
	b := &browser{t: t, in: theirs, out: bufio.NewReader(read)}
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
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	return b
}

// call calls a method and fails the test if it fails.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.ask(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *browser) ask(method string, params, result any) error {
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

func (b *browser) receive() (m message, err error) {
	text, err := b.out.ReadBytes(0)
	if err != nil {
		return m, fmt.Errorf("the browser is gone: %w", err)
	}
	return m, json.Unmarshal(text[:len(text)-1], &m)
}

// open shows a file and waits until it is loaded, it and not the blank page before.
func (b *browser) open(path string) {
	b.t.Helper()
	b.events = nil
	var page struct {
		LoaderID string `json:"loaderId"`
	}
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, &page)
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

// look sets what the reader has: a width, and a colour scheme.
func (b *browser) look(width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// eval evaluates an expression, waits for it if it is a promise, and has its value.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
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

// painted waits until what the page has set in motion is drawn.
func (b *browser) painted() {
	b.t.Helper()
	b.eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, nil)
}

// quiet reports whatever the page has logged, and whatever it has asked the network for.
func (b *browser) quiet(path string) {
	b.t.Helper()
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.t.Errorf("%s: %s", e.Method, e.Params)
		case "Network.requestWillBeSent", "Network.webSocketCreated":
			var p struct {
				Request struct {
					URL string `json:"url"`
				} `json:"request"`
			}
			if err := json.Unmarshal(e.Params, &p); err != nil {
				b.t.Fatal(err)
			}
			if url := p.Request.URL; url != "file://"+path && url != "data:," {
				b.t.Errorf("the page asks for %q", url)
			}
		}
	}
}

// screenshot keeps a picture of the whole page in the folder that -screenshots names.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	var height int
	b.eval(`document.documentElement.scrollHeight`, &height)
	var width int
	b.eval(`innerWidth`, &width)
	var r struct {
		Data []byte `json:"data"`
	}
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}, &r)
	keep(b.t, name+"-"+strconv.Itoa(width)+".png", r.Data)
}

func keep(t *testing.T, name string, data []byte) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}
