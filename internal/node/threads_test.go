package node

import (
	"os"
	"runtime"
	"testing"

	"github.com/ndklab/ndklab/provider/lease"
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

// TestProcessors: a node has half of the processors once there is traffic.
func TestProcessors(t *testing.T) {
	for all, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		if got := ownProcessors(all); got != want {
			t.Errorf("of %d processors a node has %d, want %d", all, got, want)
		}
	}
	defer runtime.SetDefaultGOMAXPROCS()
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(all + 1) // which an agent has not
	a := agent{shared: new(lease.Server)}
	for range 2 {
		if err := a.readyForTraffic(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := runtime.GOMAXPROCS(0), ownProcessors(all); got != want {
		t.Errorf("the agent has %d of %d processors, want %d", got, all, want)
	}
}
