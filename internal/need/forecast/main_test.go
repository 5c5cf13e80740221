package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/need"
)

// TestForecast: tests of the module count, in other modules and folders none do. It tells what is skipped, and why.
func TestForecast(t *testing.T) {
	const text = `package x

func TestMain(m *testing.M) {}
func TestA(t *testing.T) { need.Check(t, need.Programs("tool", "other")) }
func TestB(t *testing.T) { need.Time(t); t.Run("c", func(t *testing.T) { need.Check(t, need.Programs(of.needs...)) }) }
func (x) TestC(t *testing.T) { other.Programs("none") }
`
	file := &fstest.MapFile{Data: []byte(text)}
	found, err := read(fstest.MapFS{
		"go.mod": file, "a/a_test.go": file, "a/a.go": file, "b/c/x_test.go": file, "release/go.mod": file, "release/x_test.go": file,
		"testdata/x_test.go": file, "_a/x_test.go": file, ".a/x_test.go": file,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &needs{tests: 4, long: 2, programs: map[string][]string{"tool": {"a", "b/c"}, "other": {"a", "b/c"}}}
	if diff := cmp.Diff(want, found, cmp.AllowUnexported(needs{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	cannot := doctor.Diagnosis{Findings: []doctor.Finding{{Name: "namespaces", State: doctor.Missing, Required: true, Found: "none", Remedy: "a kernel"}}}
	for long, line := range map[string]string{"": "skipped: what takes long, in 2 places: NDKLAB_LONG=1 has it run\n", "1": ""} {
		t.Setenv(need.LongVariable, long)
		var said strings.Builder
		found.tell(&said, cannot, func(program string) bool { return program == "other" })
		_, rest, _ := strings.Cut(said.String(), "\n")
		want := line + "skipped: tests with labs, which cannot run here: namespaces: none; remedy: a kernel\n" +
			"skipped: tests that need the program tool, which is not in PATH: in a, b/c\n" +
			"`go test -v` says of each test that is skipped why; with NDKLAB_REQUIRED=1 it fails instead\n"
		if diff := cmp.Diff(want, rest); diff != "" || !strings.HasPrefix(said.String(), "4 tests: some ") {
			t.Errorf("%q: -want +got:\n%s", said.String(), diff)
		}
	}
}

// TestBroken: a test that cannot be read is told with its place.
func TestBroken(t *testing.T) {
	_, err := read(fstest.MapFS{"a/a_test.go": &fstest.MapFile{Data: []byte("package x\nfunc {")}})
	if err == nil || !strings.Contains(err.Error(), "a/a_test.go:2:6") {
		t.Errorf("%v", err)
	}
}
