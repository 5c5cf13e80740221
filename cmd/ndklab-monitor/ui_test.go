package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/live"
)

// ndklab runs a command and returns what it prints.
func ndklab(t testing.TB, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("ndklab %q: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// A page is one of `ndklab ui`: its address.
type page string

// openPage shows a lab.
func openPage(t testing.TB, args ...string) (*command, page) {
	t.Helper()
	c := start(t, append([]string{"ui", "--no-open"}, args...)...)
	return c, page(c.url(t))
}

// origin is that of the page.
func (p page) origin() string {
	u, err := url.Parse(string(p))
	if err != nil {
		return err.Error()
	}
	return u.Scheme + "://" + u.Host
}

// ask makes a request as the page would, and reads the answer.
func (p page) ask(t testing.TB, method, path string, body, answer any) (status int) {
	t.Helper()
	var sent bytes.Buffer
	if err := json.NewEncoder(&sent).Encode(body); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, string(p)+path, &sent)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", p.origin())
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode
}

// done has the server's answer to a change.
type done struct {
	Command string
	Undo    []live.Change
	Text    string
	Error   string
}

// change has a change done, and what is told of it.
func (p page) change(t testing.TB, c *live.Change) (d done) {
	t.Helper()
	if status := p.ask(t, "POST", "api/change", c, &d); status != http.StatusOK {
		t.Fatalf("%+v: %d: %s", c, status, d.Error)
	}
	return d
}

// standing returns the states of the nodes and links of a lab, as the command line shows them.
func standing(t testing.TB, lab string) string {
	t.Helper()
	var i struct {
		Nodes []struct{ Name, State string }
		Links []struct {
			State      string
			Directions []struct{ Settings []string }
		}
	}
	if err := json.Unmarshal([]byte(ndklab(t, "inspect", lab, "-o", "json")), &i); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v", i)
}

// Each change does what the command does that is shown with it, and its undo brings back what was.
func TestChanges(t *testing.T) {
	lab := up(t, 3)
	c, p := openPage(t, lab)
	defer func() {
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		c.ends(t, 0, "")
	}()
	shell := func(command string) {
		t.Helper()
		sh := exec.CommandContext(t.Context(), "sh", "-c", command)
		sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	const link = "h0:eth0"
	for _, before := range []string{"", "ndklab link set LAB/h0:eth0 loss=2% --from h0", "ndklab link down LAB/h0:eth0", "ndklab pause LAB/h1", "ndklab stop LAB/h1"} {
		if before != "" {
			shell(strings.ReplaceAll(before, "LAB", lab))
		}
		for _, change := range []live.Change{
			{Act: "set", Endpoint: link, Settings: []string{"loss=1%", "delay=2ms"}},
			{Act: "set", Endpoint: link, From: "s", Settings: []string{"loss={rate: 1%, burst: 5}"}},
			{Act: "set", Endpoint: "s:p0", Settings: []string{"rate=none", "cut=true"}},
			{Act: "set", Endpoint: link, Settings: []string{"faults=[{match: {opcode: ACKNOWLEDGE, nth: 3}, action: drop}]"}},
			{Act: "reset", Endpoint: link},
			{Act: "cut", Endpoint: link},
			{Act: "cut", Endpoint: link, From: "h0"},
			{Act: "heal", Endpoint: link},
			{Act: "partition", Sets: [][]string{{"h0", "s"}, {"h1", "h2"}}},
			{Act: "pause", Node: "h1"},
			{Act: "resume", Node: "h1"},
			{Act: "stop", Node: "h1"},
			{Act: "start", Node: "h1"},
			{Act: "kill", Node: "h1"},
		} {
			was := standing(t, lab)
			d := done{}
			if p.ask(t, "POST", "api/change", change, &d) != http.StatusOK { // as resume of a node that is not paused
				if now := standing(t, lab); now != was || d.Error == "" {
					t.Errorf("after %q: %+v was refused: %q, and changed\n%s into\n%s", before, change, d.Error, was, now)
				}
				continue
			}
			is := standing(t, lab)
			if (is != was) != (len(d.Undo) > 0) && change.Act != "partition" {
				t.Errorf("after %q: %s changed\n%s into\n%s, and is undone by %v", before, d.Command, was, is, d.Undo)
			}
			paused := strings.HasPrefix(before, "ndklab pause") && (change.Act == "stop" || change.Act == "kill" || change.Act == "start")
			if len(d.Undo) == 0 || paused { // what was paused is not paused again
				if paused {
					var undone done
					p.ask(t, "POST", "api/undo", nil, &undone)
					shell("ndklab pause " + lab + "/h1")
				}
				continue
			}
			var next, undone done
			if p.ask(t, "GET", "api/undo", nil, &next); p.ask(t, "POST", "api/undo", nil, &undone) != http.StatusOK || undone.Command != next.Command {
				t.Fatalf("undo of %s: %s %s, announced as %s", d.Command, undone.Command, undone.Error, next.Command)
			}
			if now := standing(t, lab); now != was {
				t.Errorf("after %q: %s undoes %s, and\n%s has become\n%s", before, undone.Command, d.Command, was, now)
			}
			shell(d.Command)
			if now := standing(t, lab); now != is {
				t.Errorf("after %q: the page made\n%s, and %s\n%s", before, is, d.Command, now)
			}
			shell(undone.Command)
			if now := standing(t, lab); now != was {
				t.Errorf("after %q: before %s there was\n%s, and %s made\n%s", before, d.Command, was, undone.Command, now)
			}
		}
		shell(strings.ReplaceAll("ndklab link up LAB/h0:eth0 && ndklab link reset LAB/h0:eth0", "LAB", lab))
		if strings.Contains(before, "pause") {
			shell("ndklab resume " + lab + "/h1")
		}
	}
	shell("ndklab start " + lab + "/h1")
	var d done
	if status := p.ask(t, "POST", "api/undo", nil, &d); status != http.StatusBadRequest || d.Error != "there is no change to undo" {
		t.Errorf("%d %+v", status, d)
	}
	const asked = "of what is not there"
	for _, c := range []struct {
		change live.Change
		want   string
	}{
		{live.Change{Act: "set", Endpoint: "h9:eth0", Settings: []string{"loss=1%"}}, `has no link with the endpoint "h9:eth0"`},
		{live.Change{Act: "pause", Node: "h9"}, `has no node "h9"`},
		{live.Change{Act: "perf", Node: "h0", To: "h9", Settings: []string{"test=write-bw"}}, `"h9"`},
	} {
		if status := p.ask(t, "POST", "api/change", c.change, &d); status != http.StatusBadRequest || !strings.Contains(d.Error, c.want) {
			t.Errorf("%s: %+v: %d %q", asked, c.change, status, d.Error)
		}
	}
	d = done{}
	was := standing(t, lab)
	if p.ask(t, "POST", "api/change?dry=1", live.Change{Act: "cut", Endpoint: link}, &d); d.Command != "ndklab link down "+lab+"/h0:eth0" || standing(t, lab) != was {
		t.Errorf("dry: %+v", d)
	}
}

// A message is one of a stream.
type message struct{ kind, data string }

// stream returns what the page is sent of the lab, or of a run, until it is nil.
func (p page) stream(t testing.TB, run int) func() *message {
	t.Helper()
	resp, err := http.Get(string(p) + "api/stream?run=" + strconv.Itoa(run))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	return func() *message {
		var m message
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				m.kind = kind
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				m.data = data
			}
			if lines.Text() == "" && m.kind != "" {
				return &m
			}
		}
		return nil
	}
}

// await reads a stream to a message that is wanted.
func await(t testing.TB, next func() *message, wanted func(m *message) bool) {
	t.Helper()
	for m := next(); m != nil; m = next() {
		if wanted(m) {
			return
		}
	}
	t.Fatal("the stream has ended")
}

// The page sees what happens: a change by the command line, a workload, another topology, and the end.
func TestStream(t *testing.T) {
	lab := up(t, 2)
	c, p := openPage(t, lab)
	next := p.stream(t, 0)
	var m live.Map
	await(t, next, func(got *message) bool { return got.kind == "map" && json.Unmarshal([]byte(got.data), &m) == nil })
	if len(m.Nodes) != 3 || len(m.Links) != 2 || m.Lab != lab {
		t.Errorf("%+v", m)
	}
	sample := func(got *message) *live.Sample {
		var s live.Sample
		if got.kind != "sample" {
			return &s
		}
		if err := json.Unmarshal([]byte(got.data), &s); err != nil || len(s.Nodes) != len(m.Nodes) || len(s.Links) != len(m.Links) {
			t.Fatalf("%v: %s", err, got.data)
		}
		return &s
	}
	ndklab(t, "link", "set", lab+"/h0:eth0", "loss=3%")
	await(t, next, func(got *message) bool { return strings.Contains(fmt.Sprintf("%+v", sample(got).Links), "loss=3%") })
	d := p.change(t, &live.Change{Act: "perf", Node: "h0", To: "h1", Settings: []string{"test=write-bw", "duration=3s"}})
	if want := "ndklab perf " + lab + " write-bw --from h0 --to h1 --duration=3s"; d.Command != want {
		t.Errorf("%s, want %s", d.Command, want)
	}
	seen, over := false, false
	await(t, next, func(got *message) bool {
		if s := sample(got); len(s.Workloads) > 0 && s.Nodes[1].Out > 0 && s.Links[0].Ends[0].Rate > 0 {
			seen = true
		}
		over = over || got.kind == "event" && strings.Contains(got.data, `"kind":"workload-done"`)
		return seen && over
	})
	var ended struct{ Reason string }
	down := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), "down", lab)
	if err := down.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, next, func(got *message) bool {
		if strings.Contains(got.data, "cannot be seen") {
			t.Errorf("beside the end: %s", got.data)
		}
		return got.kind == "ended" && json.Unmarshal([]byte(got.data), &ended) == nil
	})
	if want := "lab " + lab + " was taken down"; ended.Reason != want {
		t.Errorf("%q, want %q", ended.Reason, want)
	}
	c.ends(t, 2, "ndklab: "+ended.Reason)
	if err := down.Wait(); err != nil {
		t.Error(err)
	}
	ndklab(t, "up", fileOf(t, lab, 2)) // which the test's end takes down
}

// The page shows nodes and links, and says what is missing as the command line does.
func TestPanels(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	var node struct {
		Node        struct{ Name, State, Kind string }
		Adapter     *struct{ Name string }
		Connections []any
		Log         []string
		Error       string
	}
	for name, kind := range map[string]string{"h0": "host", "s": "switch"} {
		if status := p.ask(t, "GET", "api/node/"+name, nil, &node); status != http.StatusOK || node.Node.Name != name || node.Node.State != "ready" || node.Node.Kind != kind || node.Connections == nil || (node.Adapter != nil) != (kind == "host") {
			t.Errorf("%s: %d %+v", name, status, node)
		}
	}
	var link struct {
		Endpoints []string
		State     string
		Error     string
	}
	if status := p.ask(t, "GET", "api/link/"+url.PathEscape("s:p0"), nil, &link); status != http.StatusOK || !cmp.Equal(link.Endpoints, []string{"h0:eth0", "s:p0"}) || link.State != "up" {
		t.Errorf("%d %+v", status, link)
	}
	for path, want := range map[string]string{
		"api/node/h9":                  "lab " + lab + ` has no node "h9"`,
		"api/link/h9:eth0":             "lab " + lab + ` has no link with the endpoint "h9:eth0"`,
		"api/capture/h9:eth0":          "lab " + lab + " has no interface h9:eth0",
		"api/capture/h0":               `"h0" is no interface, expected NODE:IFACE`,
		"api/capture/h0:eth0?seconds=": "",
		"api/stream?run=1":             `run="1", expected 0 to 0`,
		"api/terminal/h9":              "lab " + lab + ` has no node "h9"`,
	} {
		if want == "" {
			continue
		}
		if status := p.ask(t, "GET", path, nil, &link); status != http.StatusBadRequest || link.Error != want {
			t.Errorf("%s: %d %q, want %q", path, status, link.Error, want)
		}
	}
}

// A capture is downloaded while it goes on, as `ndklab capture` writes it.
func TestDownload(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", string(p)+"api/capture/h0:eth0", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if name := resp.Header.Get("Content-Disposition"); resp.Header.Get("Content-Type") != "application/x-pcapng" || name != "attachment; filename="+lab+"-h0-eth0.pcapng" {
		t.Errorf("%q", resp.Header)
	}
	pinging := exec.CommandContext(ctx, filepath.Join(bin, "ndklab"), "exec", lab+"/h0", "--", "ping", "-q", "-i", "0.1", "10.0.0.2")
	if err := pinging.Start(); err != nil {
		t.Fatal(err)
	}
	file, err := pcapgo.NewNgReader(resp.Body, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for echoes := 0; echoes < 4; { // both ways
		data, info, err := file.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		if info.Length == 98 && len(data) == 98 && data[23] == 1 { // ICMP, as ping sends it
			echoes++
		}
	}
	cancel()
	_ = pinging.Wait() // it was killed
	next := p.stream(t, 0)
	await(t, next, func(m *message) bool {
		return m.kind == "event" && strings.Contains(m.data, "capture of h0:eth0 is over")
	})
}

// A terminal is a shell in the node, as large as the page says, which ends with the page.
func TestTerminal(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	dial := func(origin string) (*websocket.Conn, error) {
		conn, resp, err := websocket.Dial(t.Context(), string(p)+"api/terminal/h0", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if err != nil && resp != nil {
			err = fmt.Errorf("%s: %w", resp.Status, err)
		}
		return conn, err
	}
	for _, origin := range []string{"http://evil.example", "null"} {
		if _, err := dial(origin); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("from %s: %v", origin, err)
		}
	}
	send := func(conn *websocket.Conn, kind websocket.MessageType, text string) {
		t.Helper()
		if err := conn.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var shown strings.Builder
	until := func(conn *websocket.Conn, text string) error {
		for !strings.Contains(shown.String(), text) {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				return err
			}
			shown.Write(data)
		}
		return nil
	}
	t.Setenv("SHELL", "/bin/sh")
	conn, err := dial(p.origin())
	if err != nil {
		t.Fatal(err)
	}
	if err := until(conn, "["+lab+"/h0]"); err != nil {
		t.Fatalf("%v, shown %q", err, shown.String())
	}
	send(conn, websocket.MessageText, `{"rows": 31, "columns": 117}`)
	send(conn, websocket.MessageBinary, "stty size; echo $TERM; ip -o address show dev eth0; exit 3\r")
	for _, want := range []string{"31 117", "xterm-256color", "10.0.0.1/"} {
		if err := until(conn, want); err != nil {
			t.Fatalf("%v before %q, shown %q", err, want, shown.String())
		}
	}
	var closed websocket.CloseError
	if err := until(conn, "never"); !errors.As(err, &closed) || closed.Code != websocket.StatusNormalClosure || closed.Reason != "the shell has ended with status 3" {
		t.Errorf("%v", err)
	}

	// A program ends when the page goes: its end of a pipe closes.
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if conn, err = dial(p.origin()); err != nil {
		t.Fatal(err)
	}
	send(conn, websocket.MessageBinary, "sh -c 'echo here; exec sleep 1000' >"+pipe+"\r")
	end, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	lines := bufio.NewReader(end)
	if line, err := lines.ReadString('\n'); line != "here\n" || err != nil {
		t.Fatalf("%q %v", line, err)
	}
	if err := conn.CloseNow(); err != nil {
		t.Error(err)
	}
	if _, err := lines.ReadString('\n'); err != io.EOF {
		t.Errorf("%v", err)
	}

	// A size of nothing is refused.
	if conn, err = dial(p.origin()); err != nil {
		t.Fatal(err)
	}
	shown.Reset()
	send(conn, websocket.MessageText, `{"rows": 0, "columns": 117}`)
	if err := until(conn, "never"); !errors.As(err, &closed) || closed.Code != websocket.StatusUnsupportedData {
		t.Errorf("%v", err)
	}
}

// The command serves until Ctrl-C, says why it does not, and leaves nothing behind however it ends.
func TestUICommand(t *testing.T) {
	lab := up(t, 2)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		c, p := openPage(t, lab)
		next := p.stream(t, 0)
		await(t, next, func(m *message) bool { return m.kind == "sample" })
		address := strings.TrimPrefix(p.origin(), "http://")
		start(t, "ui", lab, "--no-open", "--listen", address).ends(t, 3, "ndklab: --listen "+address+": listen tcp "+address+": bind: address already in use; expected an address of this machine and a port that is free")
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		said := ""
		for m := next(); m != nil; m = next() { // until the connection ends, and with it the program behind the command
			if m.kind == "ended" {
				said = m.data
			}
		}
		if signal == syscall.SIGKILL {
			c.ends(t, -1, "")
		} else if c.ends(t, 0, ""); said != "{\"reason\":\"`ndklab ui` has ended\"}" {
			t.Errorf("%v: %q", signal, said)
		}
		if _, err := http.Get(string(p)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after %v: %v", signal, err)
		}
	}

	c, _ := openPage(t, lab)
	var monitor int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.Process.Pid))
	for _, task := range tasks {
		children, err := os.ReadFile(task)
		if _, scan := fmt.Sscan(string(children), &monitor); err == nil && scan == nil {
			break
		}
	}
	if monitor == 0 {
		t.Fatalf("no child, %v", err)
	}
	if err := syscall.Kill(monitor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.ends(t, 4, "ndklab: ndklab-monitor died (signal: killed)")

	start(t, "ui", "nosuchlab").ends(t, 2, "ndklab: lab nosuchlab is not up (")
	if out := ndklab(t, "inspect", lab); !strings.Contains(out, "h0") {
		t.Errorf("the lab: %s", out)
	}
}

// Where others are listened to, the command says what that means.
func TestListenToOthers(t *testing.T) {
	lab := up(t, 2)
	c := start(t, "ui", lab, "--no-open", "--listen", "0.0.0.0:0")
	if url := c.url(t); !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("%s", url)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.ends(t, 0, "warning: --listen 0.0.0.0:0: other machines reach it, and whoever has the URL rules the lab")
}

// A browser is led to the page by a file of its user's, which is gone when the page was shown. Without a desktop, or as root by sudo, none is opened;
// and that it cannot be is no error.
func TestBrowser(t *testing.T) {
	lab := up(t, 2)
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	opener := func(script string) {
		if err := os.WriteFile(filepath.Join(folder, "xdg-open"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("XDG_RUNTIME_DIR", folder)
	t.Setenv("SUDO_UID", "")
	t.Setenv("DISPLAY", ":0")
	opener(`{ echo "$@"; stat -c %a "$@"; cat "$@"; } >` + pipe)
	c := start(t, "ui", lab)
	url := c.url(t)
	read, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(read), "\n", 3)
	if len(lines) != 3 || strings.Contains(lines[0], "http") || lines[1] != "600" || !strings.Contains(lines[2], `content="0;url=`+url+`"`) {
		t.Fatalf("%q", read)
	}
	if resp, err := http.Get(url); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v, %+v", err, resp)
	} else {
		resp.Body.Close()
	}
	if _, err := os.Stat(filepath.Dir(lines[0])); !os.IsNotExist(err) {
		t.Errorf("%s: %v", lines[0], err)
	}
	stop := func(c *command, said string) {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		c.ends(t, 0, said)
	}
	stop(c, "")

	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	c = start(t, "ui", lab)
	c.url(t)
	stop(c, `no browser was opened (exec: "xdg-open": executable file not found in $PATH): the URL is above`)
	t.Setenv("PATH", path)
	if left, err := filepath.Glob(filepath.Join(folder, "ndklab-ui-*")); err != nil || left != nil {
		t.Errorf("%v %v", left, err)
	}
	opener("echo opened >" + filepath.Join(folder, "opened"))
	for name, value := range map[string]string{"DISPLAY": "", "SUDO_UID": "1000"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			c := start(t, "ui", lab)
			c.url(t)
			stop(c, "")
			if _, err := os.Stat(filepath.Join(folder, "opened")); !os.IsNotExist(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Packets and sequences of queue pairs come from captures, which go on while the page asks.
func TestPackets(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	var packets struct {
		Rows []struct {
			From, Opcode string
			PSN          *uint32
		}
		Error string
	}
	if status := p.ask(t, "GET", "api/packets/h0:eth0", nil, &packets); status != http.StatusOK || packets.Rows == nil {
		t.Fatalf("%d %+v", status, packets)
	}
	p.change(t, &live.Change{Act: "perf", Node: "h0", To: "h1", Settings: []string{"test=write-bw", "duration=10s", "rate=10mbit"}})
	written := func() bool {
		for _, row := range packets.Rows {
			if row.From == "h0:eth0" && strings.Contains(row.Opcode, "WRITE") && row.PSN != nil {
				return true
			}
		}
		return false
	}
	for !written() { // each answer waits for nothing but the machine
		if status := p.ask(t, "GET", "api/packets/h0:eth0?n=50", nil, &packets); status != http.StatusOK || len(packets.Rows) > 50 {
			t.Fatalf("%d %d rows %s", status, len(packets.Rows), packets.Error)
		}
	}
	var node struct {
		Connections []struct {
			QPN   uint32
			State string
		}
	}
	p.ask(t, "GET", "api/node/h0", nil, &node)
	var qpn uint32
	for _, c := range node.Connections {
		qpn = max(qpn, c.QPN)
	}
	if qpn == 0 {
		t.Fatalf("%+v", node)
	}
	var sequence struct {
		From   struct{ QPN uint32 }
		Points []struct{ Kind string }
	}
	for kinds := map[string]bool{}; !kinds["data"] || !kinds["ack"]; {
		if status := p.ask(t, "GET", fmt.Sprintf("api/sequence/h0/%d", qpn), nil, &sequence); status != http.StatusOK {
			t.Fatalf("%d %+v", status, sequence)
		}
		for _, point := range sequence.Points {
			kinds[point.Kind] = true
		}
	}
	for path, want := range map[string]string{
		"api/packets/h0:eth0?n=0":  "n=0: expected a number from 1 to 5000",
		"api/packets/h9:eth0":      `has no link with the endpoint "h9:eth0"`,
		"api/sequence/h0/16777216": `QPN "16777216": expected a number of 24 bits`,
		"api/sequence/h9/7":        `no node "h9"`,
	} {
		if status := p.ask(t, "GET", path, nil, &packets); status != http.StatusBadRequest || !strings.Contains(packets.Error, want) {
			t.Errorf("%s: %d %q, want %q", path, status, packets.Error, want)
		}
	}
}

// Reports of runs are played back, two of them beside each other. There is no lab, and nothing to be changed.
func TestReports(t *testing.T) {
	folder := t.TempDir()
	text := "seed: 1\ntopology:\n  nodes: {a: {}, b: {}}\n  links: [{endpoints: [\"a:eth0\", \"b:eth0\"], delay: 1ms, rate: 1gbit}]\nworkloads: [{name: w, operation: write, from: a, to: b, size: 64KiB, duration: 300ms}]\n"
	var reports []string
	for _, name := range []string{"before", "after"} {
		file, report := filepath.Join(folder, name+".ndklab.yaml"), filepath.Join(folder, name+".json")
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.WriteFile(report, []byte(ndklab(t, "run", file, "--name", name, "--simulate", "-o", "json")), 0o644)); err != nil {
			t.Fatal(err)
		}
		reports = append(reports, report)
	}
	c, p := openPage(t, reports...)
	for run, name := range []string{"before", "after"} {
		next := p.stream(t, run)
		var m live.Map
		if first := next(); first == nil || first.kind != "map" || json.Unmarshal([]byte(first.data), &m) != nil || m.Lab != name || !m.Replay || m.Runs != 2 || len(m.Nodes) != 2 {
			t.Errorf("%d: %+v, %+v", run, first, m)
		}
		await(t, next, func(got *message) bool { return got.kind == "sample" && strings.Contains(got.data, `"workloads":[{`) })
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", string(p)+"api/change", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", p.origin())
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %+v", err, resp)
	} else {
		resp.Body.Close()
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.ends(t, 0, "")

	nonsense := filepath.Join(folder, "nonsense.json")
	if err := os.WriteFile(nonsense, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, "ui", reports[0], nonsense).ends(t, 2, "ndklab: "+nonsense+": no report: it has neither workloads nor labs; expected what `ndklab run -o json` prints")
	start(t, "ui", filepath.Join(folder, "missing.json")).ends(t, 2, "ndklab: there is no file "+filepath.Join(folder, "missing.json"))
}

// An ordinary user has a page of his own labs, and changes them. Labs of others are none to him.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already, as whom all tests run")
	}
	roots, home := up(t, 2), ownedByNobody(t)
	as := func(c *exec.Cmd) { asNobody(c, home) }
	nobodys := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), args...)
		as(c)
		out, err := c.CombinedOutput()
		if args[0] == "up" && c.ProcessState.ExitCode() == 3 {
			t.Skipf("an ordinary user has no labs here: %s", out)
		}
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	lab := roots + "-n"
	text, err := os.ReadFile(fileOf(t, lab, 2))
	file := filepath.Join(home, "lab.ndklab.yaml")
	if err = errors.Join(err, os.WriteFile(file, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	startAs(t, as, "ui", roots).ends(t, 2, "ndklab: lab "+roots+" is not up (")
	nobodys("up", file)
	defer nobodys("down", lab)
	c := startAs(t, as, "ui", file, "--no-open")
	p := page(c.url(t))
	if d := p.change(t, &live.Change{Act: "set", Endpoint: "h0:eth0", Settings: []string{"loss=7%"}}); d.Command != "ndklab link set "+lab+"/h0:eth0 loss=7%" {
		t.Errorf("%+v", d)
	}
	if shown := nobodys("link", "show", lab); strings.Count(shown, "loss=7%") != 2 {
		t.Errorf("%s", shown)
	}
	start(t, "ui", lab).ends(t, 2, "ndklab: lab "+lab+" is not up (")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.ends(t, 0, "")
}
