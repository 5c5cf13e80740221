package lab

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Labs share no lock: while everything of one is stopped, at whatever stage of its life,
// others come up, are listed, swept and collected, and go down.
func TestLabsDoNotWaitForEachOther(t *testing.T) {
	for _, test := range []struct {
		stage string
		// reached reports whether the lab has come so far.
		reached func(t *testing.T, name string) bool
		end     bool // and is then told to end
	}{
		{stage: "it has a guardian", reached: hasPart("ndklab-guardian")},
		{stage: "it has a supervisor", reached: hasPart("ndklab-supervisor")},
		{stage: "it has a node", reached: hasPart("ndklab-node")},
		{stage: "it is up", reached: isReady},
		{stage: "it ends", reached: isReady, end: true},
	} {
		t.Run(test.stage, func(t *testing.T) {
			stopped := uniqueName(t)
			cmd := startCommand(t, "up "+stopped+" fabric")
			eventually(t, testTime, func() string {
				if test.reached(t, stopped) {
					return ""
				}
				return "not yet"
			})
			if test.end {
				stop(t, processOf(t, stopped, guardianName)) // or it may be over before the rest is stopped
				if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			stopAll(t, cmd, stopped)
			// Those of the lab are ended by the kernel with its supervisor, the guardian by us,
			// and so is the command, which may have the lock still.
			t.Cleanup(func() {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
				for _, p := range processes(stopped) {
					if strings.HasPrefix(p.args, guardianName) || strings.HasPrefix(p.args, supervisorName) {
						p.signal(t, unix.SIGKILL)
					}
				}
				eventually(t, testTime, func() string {
					if err := Sweep(); err != nil {
						t.Fatal(err)
					}
					return remains(t, stopped)
				})
			})
			topo := ring(uniqueName(t)+"-other", 2)
			l, err := Start(testContext(t), topo, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Collect([]string{topo.Name, stopped}, false); err != nil {
				t.Error(err)
			}
			if test.end { // List gives the stopped lab a second to answer
				if _, err := List(testContext(t)); err != nil {
					t.Error(err)
				}
			}
			if err := Sweep(); err != nil {
				t.Error(err)
			}
			if err := l.Down(testContext(t)); err != nil {
				t.Error(err)
			}
			if rest := remains(t, topo.Name); rest != "" {
				t.Errorf("left behind: %s", rest)
			}
		})
	}
}

// stopAll stops a command and all processes of the lab that it makes, also those that
// start meanwhile, and waits until they stand still.
func stopAll(t *testing.T, cmd *command, name string) {
	t.Helper()
	stop(t, cmd.Process.Pid)
	eventually(t, testTime, func() string {
		moving := ""
		for _, p := range processes(name) {
			if states := threadStates(t, p.pid); states != "" && !standsStill(states) {
				p.signal(t, unix.SIGSTOP)
				moving += fmt.Sprintf("threads of %d %s are %s; ", p.pid, p.args, states)
			}
		}
		return moving
	})
}

func hasPart(part string) func(*testing.T, string) bool {
	return func(_ *testing.T, name string) bool {
		for _, p := range processes(name) {
			if strings.HasPrefix(p.args, part+" ") {
				return true
			}
		}
		return false
	}
}

func isReady(t *testing.T, name string) bool {
	l, err := Open(testContext(t), name)
	if err != nil {
		return false // there is none yet
	}
	defer l.Close()
	return l.Info().State == Ready
}

// BenchmarkLabsAtOnce makes labs of two nodes and takes them down, so many side by side. The
// time is for all of them; per lab it is less with two processors, and does not grow.
func BenchmarkLabsAtOnce(b *testing.B) {
	for _, n := range []int{1, 2, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				var labs sync.WaitGroup
				for i := range n {
					labs.Go(func() {
						l, err := Start(testContext(b), ring(fmt.Sprintf("%s-%d", uniqueName(b), i), 2), Options{})
						if err != nil {
							b.Error(err)
							return
						}
						if err := l.Close(); err != nil {
							b.Error(err)
						}
					})
				}
				labs.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*n), "ms/lab")
		})
	}
}
