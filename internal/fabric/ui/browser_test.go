package ui

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// The command says in a line that no browser was opened, and goes on. No file is left.
func TestBrowse(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	t.Setenv("XDG_RUNTIME_DIR", folder)
	if err := os.WriteFile(filepath.Join(folder, opener), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	said, out := io.Pipe()
	_, remove, err := browse("http://127.0.0.1:1/<&/", out)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != "no browser was opened (xdg-open: exit status 3): the URL is above\n" {
		t.Errorf("%q, %v", line, err)
	}
	found, err := filepath.Glob(filepath.Join(folder, "ndklab-ui-*", "ndklab.html"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	page, err := os.ReadFile(found[0])
	if info, stat := os.Stat(found[0]); err != nil || stat != nil || info.Mode().Perm() != 0o600 || !strings.Contains(string(page), `content="0;url=http://127.0.0.1:1/&lt;&amp;/"`) {
		t.Errorf("%v, %v, %s", err, stat, page)
	}
	remove()
	remove()
	if left, err := filepath.Glob(filepath.Join(folder, "ndklab-ui-*")); err != nil || left != nil {
		t.Errorf("%v %v", left, err)
	}
}

// The file that leads to the page is gone before any of the page is sent: who has the page sees no file.
func TestAskedBeforeSent(t *testing.T) {
	sent := httptest.NewRecorder()
	asked := 0
	s := &server{files: fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}}, asked: func() {
		if asked++; sent.Body.Len() != 0 {
			t.Errorf("already sent: %q", sent.Body)
		}
	}}
	s.page(sent, httptest.NewRequest(http.MethodGet, "/", nil))
	if asked != 1 || sent.Body.String() != "<!doctype html>" {
		t.Errorf("asked %d times, sent %q", asked, sent.Body)
	}
}

// There is a desktop where the environment has one, unless it is another user's.
func TestHasDesktop(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"DISPLAY": ":0"}, true},
		{map[string]string{"WAYLAND_DISPLAY": "wayland-0"}, true},
		{map[string]string{"DISPLAY": ":0", "SUDO_UID": "1000"}, false},
	} {
		if got := hasDesktop(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}
