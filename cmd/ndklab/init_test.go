package main

import (
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Bounds on what the package initialisation of an agent allocates. An agent runs this
// binary, and a lab has a thousand agents. A package that parses, compiles or fills
// tables allocates; how long that takes depends on the machine.
const (
	maxInitBytes  = 112 << 10
	maxInitAllocs = 1000
)

// envInit makes the test binary do nothing but be initialised.
const envInit = "NDKLAB_TEST_INIT"

// TestInit adds up what the packages allocate when they are initialised that the binary
// links: the least of several runs for each, since the runtime may begin a collection.
func TestInit(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := map[string]bool{}
	for name := range strings.Lines(string(list)) {
		linked[strings.TrimSpace(name)] = true
	}
	type allocated struct{ bytes, allocs int }
	least := map[string]allocated{}
	for range 5 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), envInit+"=1", "GODEBUG=inittrace=1")
		trace, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, trace)
		}
		for line := range strings.Lines(string(trace)) {
			// init PACKAGE @0.63 ms, 0.004 ms clock, 5976 bytes, 81 allocs
			f := strings.Fields(line)
			if len(f) < 10 || f[0] != "init" {
				continue
			}
			name, err := url.PathUnescape(f[1]) // the dots of gopkg.in/yaml.v3 are escaped
			if err != nil || !linked[name] {
				continue // the test's own packages and this one's test variant aside
			}
			bytes, bytesErr := strconv.Atoi(f[7])
			allocs, allocsErr := strconv.Atoi(f[9])
			if bytesErr != nil || allocsErr != nil {
				t.Fatalf("%q: %v, %v", line, bytesErr, allocsErr)
			}
			before, ok := least[name]
			if !ok {
				before = allocated{bytes, allocs}
			}
			least[name] = allocated{min(bytes, before.bytes), min(allocs, before.allocs)}
		}
	}
	if len(least) < 5 {
		t.Fatalf("the trace has only %v", least)
	}
	var sum allocated
	for name, a := range least {
		sum.bytes += a.bytes
		sum.allocs += a.allocs
		if a.bytes > maxInitBytes/100 {
			t.Logf("%s: %d bytes, %d allocations", name, a.bytes, a.allocs)
		}
	}
	t.Logf("%d bytes, %d allocations in %d packages", sum.bytes, sum.allocs, len(least))
	if sum.bytes > maxInitBytes || sum.allocs > maxInitAllocs {
		t.Errorf("package initialisation allocates %d bytes by %d allocations, more than %d by %d: %v", sum.bytes, sum.allocs, maxInitBytes, maxInitAllocs, least)
	}
}
