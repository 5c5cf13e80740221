package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// Makefile has the linker set what `ndklab version` prints.
func TestMakeSetsVersion(t *testing.T) {
	need.Check(t, need.Programs("make"))
	out, err := exec.Command("make", "--no-print-directory", "-n", "-C", filepath.Join("..", ".."), "build", "VERSION=v1.2.3", "COMMIT=f00d", "DATE=2026-11-29T00:00:00Z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-X main.version=v1.2.3 ", "-X main.commit=f00d ", "-X main.date=2026-11-29T00:00:00Z'"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("make build runs %swithout %q", out, want)
		}
	}
	defer func(v, c, d string) { version, commit, date = v, c, d }(version, commit, date)
	version, commit, date = "v1.2.3", "f00d", "2026-11-29T00:00:00Z"
	var stdout, stderr bytes.Buffer
	if code := execute([]string{"version"}, &stdout, &stderr); code != exitOK || !strings.HasPrefix(stdout.String(), "ndklab v1.2.3 go") || !strings.HasSuffix(stdout.String(), "\ncommit f00d of 2026-11-29T00:00:00Z\n") {
		t.Errorf("ndklab version exits with %d and prints %q, %q", code, &stdout, &stderr)
	}
}
