package jsonfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second file takes the place of the first, and nothing else is left.
func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	for _, v := range []int{1, 2} {
		if err := Write(file, map[string]int{"v": v}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if want := "{\n  \"v\": 2\n}\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v, expected %q", text, err, want)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// A file that cannot be written is named, and one from before stays.
func TestWriteFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "results.json")
	if err := Write(file, 1); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	file = filepath.Join(t.TempDir(), "results.json")
	if err := Write(file, 1); err != nil {
		t.Fatal(err)
	}
	if err := Write(file, make(chan int)); err == nil {
		t.Error("a channel is no JSON")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
}
