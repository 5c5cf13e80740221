package main

import (
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxInit bounds the package initialisation of an agent, which is this binary:
// a lab has a thousand of them.
const maxInit = time.Millisecond

// envInit makes the test binary do nothing but be initialised.
const envInit = "NDKLAB_TEST_INIT"

// TestInit adds up what the packages take to initialise that the binary links: the
// least time of several runs for each, since the machine has other things to do
// as well.
func TestInit(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := map[string]bool{}
	for name := range strings.Lines(string(list)) {
		linked[strings.TrimSpace(name)] = true
	}
	least := map[string]time.Duration{}
	for range 10 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), envInit+"=1", "GODEBUG=inittrace=1")
		trace, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, trace)
		}
		for line := range strings.Lines(string(trace)) {
			// init PACKAGE @0.63 ms, 0.004 ms clock, 5976 bytes, 81 allocs
			f := strings.Fields(line)
			if len(f) < 5 || f[0] != "init" {
				continue
			}
			name, err := url.PathUnescape(f[1]) // the dots of gopkg.in/yaml.v3 are escaped
			if err != nil || !linked[name] {
				continue // the test's own packages and this one's test variant aside
			}
			ms, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			d := time.Duration(ms * float64(time.Millisecond))
			if before, ok := least[name]; !ok || d < before {
				least[name] = d
			}
		}
	}
	if len(least) < 5 {
		t.Fatalf("the trace has only %v", least)
	}
	sum := time.Duration(0)
	for name, d := range least {
		sum += d
		if d > 20*time.Microsecond {
			t.Logf("%s: %v", name, d)
		}
	}
	t.Logf("%v in %d packages", sum, len(least))
	if sum > maxInit {
		t.Errorf("package initialisation takes %v, more than %v: %v", sum, maxInit, least)
	}
}
