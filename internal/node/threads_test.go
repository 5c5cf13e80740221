package node

import (
	"os"
	"testing"
)

func TestMakeThreads(t *testing.T) {
	makeThreads(spareThreads)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < spareThreads {
		t.Errorf("the process has %d threads, want %d and more", len(threads), spareThreads)
	}
}
