package libtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var included = regexp.MustCompile(`(?m)^#include "(.+)"`)

// TestHeadersOfEngine: each header that the engine's sources include, or one of those includes, is in its folder, where Go
// sees that it has changed, and is a link to that of the library where there is one of its name. Else the engine would not
// be built again, and would have other structures than the library.
func TestHeadersOfEngine(t *testing.T) {
	const engine = "../engine"
	list := exec.Command("go", "list", "-f", "{{range .HFiles}}{{.}} {{end}}", engine)
	list.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := append(strings.Fields(string(out)), "_cgo_export.h") // which cgo makes
	files, err := filepath.Glob(engine + "/*.[gch]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range included.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(seen, match[1]) {
				t.Errorf("%s includes %s, of which Go sees no change: it sees those of %v", file, match[1], seen)
			}
		}
	}
	for _, header := range seen {
		theirs, err := os.Stat(filepath.Join(sources, header))
		if err != nil {
			continue // the engine's own
		}
		if ours, err := os.Stat(filepath.Join(engine, header)); err != nil || !os.SameFile(ours, theirs) {
			t.Errorf("%s of the engine is not the library's: %v", header, err)
		}
	}
}
