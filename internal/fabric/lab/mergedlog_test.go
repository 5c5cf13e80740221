package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Records that several engines wrote are in the file, with one header, or are counted as missing.
func TestMergedLog(t *testing.T) {
	line := func(link string) string {
		r := impair.Record{Link: link, Place: 1}
		return string(r.Append(nil))
	}
	header, missing := string(impair.AppendHeader(nil, 1)), string(impair.AppendMissing(nil, 5))
	streams := []string{
		header + line("a") + missing + line("a"),
		header + line("b"),
		header + line("c") + line("c")[:10], // of an engine that was killed
	}
	path := filepath.Join(t.TempDir(), "log")
	for name, want := range map[string]report.Recorded{
		path:        {Records: 4, Missing: 5 + 1},
		"/dev/full": {Records: 0, Missing: 5 + 5, Error: "write /dev/full: no space left on device"},
	} {
		file, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		m := newMergedLog(file, len(streams))
		for i, text := range streams {
			m.take(i, strings.NewReader(text))
		}
		if err := m.await(testContext(t), []uint64{2, 1, 2}); err != nil { // the engine says that it has written two
			t.Fatal(err)
		}
		got := report.Recorded{Records: 5, Missing: 5}
		if m.count(&got); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(line("a")+missing+line("a")+line("b")+line("c"), string(data)); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}
