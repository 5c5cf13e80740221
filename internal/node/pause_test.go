package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestPause has no thread of an agent run that is paused, again and again.
func TestPause(t *testing.T) {
	a := up(t, onLoopback().Adapter)
	for range 30 {
		if err := a.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", a.PID()))
		if err != nil || len(threads) < 2 {
			t.Fatalf("threads %v, %v", threads, err)
		}
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if state := stat[bytes.LastIndexByte(stat, ')')+2]; state != 'T' {
				t.Errorf("a thread is in state %c", state)
			}
		}
		if err := a.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Counters(t.Context()); err != nil {
		t.Error(err)
	}
}
