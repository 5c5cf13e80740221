package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/nobody"
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

	c, p := openPage(t, lab)
	await(t, p.stream(t, 0), func(m *message) bool { return m.kind == "sample" })
	wantConfined(t, c)
	if err := syscall.Kill(monitorOf(t, c.Process.Pid), syscall.SIGKILL); err != nil {
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

// A browser is led to the page by a file of its user's, which is gone once the page was asked for. Without a desktop, or as root by sudo, none is opened;
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

// An ordinary user has a page of his own labs, and changes them. Labs of others are none to him.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already, as whom all tests run")
	}
	roots, home := up(t, 2), nobody.Home(t)
	as := func(c *exec.Cmd) { nobody.Become(c, home) }
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
