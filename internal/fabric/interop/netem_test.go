package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNetem runs, in a virtual machine, whose kernel has netem, the tests of links
// that it impairs, and measures what they do. The machine has no part in a lab here:
// labs run in it.
func TestNetem(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	g := guest{name: fmt.Sprintf("ndklab-%d-netem", os.Getpid())}
	t.Cleanup(func() { script(t, commandTime, "stop", "--purge", g.name) })
	script(t, bootTime, "boot", g.name, "--no-net", "--no-rxe", "--cpus", "2", "--while", fmt.Sprint(os.Getpid()))
	for _, suite := range []struct{ of, run string }{{"netem", "."}, {"lab", "Netem"}} {
		t.Run(suite.of, func(t *testing.T) { g.suite(t, suite.of, "../"+suite.of, suite.run) })
	}
	t.Run("figures", func(t *testing.T) { g.figures(t) })
}

// TestControlGroups runs, in a virtual machine, whose kernel has control groups of version
// 2 alone, the tests of these and of labs with limits.
func TestControlGroups(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	g := guest{name: fmt.Sprintf("ndklab-%d-groups", os.Getpid())}
	t.Cleanup(func() { script(t, commandTime, "stop", "--purge", g.name) })
	script(t, bootTime, "boot", g.name, "--no-net", "--no-rxe", "--cpus", "2", "--while", fmt.Sprint(os.Getpid()))
	for _, suite := range []struct{ of, in, run string }{{"cgroup", "../../node/cgroup", "."}, {"lab", "../lab", "Limit|Delegated"}} {
		t.Run(suite.of, func(t *testing.T) { g.suite(t, suite.of, suite.in, suite.run) })
	}
}

// suite runs those tests of a package in the guest whose names match, none of which may
// be skipped.
func (g guest) suite(t *testing.T, name, dir, run string) {
	t.Helper()
	g.share(t, name+".test", "test", "-c", "-o", "FILE", dir)
	out := g.run(t, fmt.Sprintf("cd /tmp && /share/%s.test -test.v -test.timeout 5m -test.run '%s'", name, run))
	if !strings.Contains(out, "--- PASS") || strings.Contains(out, "--- SKIP") {
		t.Errorf("not all tests ran:\n%s", out)
	}
}

// share has the go command make a static program, FILE among its arguments, which
// the guest sees as /share/NAME.
func (g guest) share(t *testing.T, name string, arguments ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	for i, a := range arguments {
		if a == "FILE" {
			arguments[i] = file
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	script(t, time.Minute, "share", g.name, file)
}

// Bounds on the errors of netem's figures, in a machine that is emulated and shares its
// processors: of the delay of the median packet, and of the rate over two seconds, which
// a pause of the machine before them adds to. The machine may send less than a rate above
// netemSure.
const (
	netemLate = 100.0 // ms
	netemRate = 0.1
	netemSure = 1e6 // bits per second
)

// figures has bench/fabric measure netem: what its probes say of delays, losses and
// rates is right. A short test has them measure rates alone.
func (g guest) figures(t *testing.T) {
	parts := "delay,loss,burst,rate,tcp"
	if testing.Short() {
		parts = "rate"
	}
	g.share(t, "fabric", "build", "-o", "FILE", "../../../bench/fabric")
	// It fails if it misses a limit of its own, and the tolerances here are wider.
	out := g.run(t, "cd /tmp && (/share/fabric -slow -engines netem -only "+parts+" -json fabric.json || true) >&2 && cat fabric.json")
	var results struct {
		Rows []struct {
			Part, What, Asked, Got, Error string
			OK                            bool
			Values                        map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(results.Rows) == 0 {
		t.Error("nothing was measured")
	}
	for _, row := range results.Rows {
		t.Logf("%s %s: %s", row.Part, row.Asked, row.Got)
		right := row.OK
		switch v := row.Values; row.Part {
		case "delay":
			right = v["p50_us"] > 0 && v["p50_us"] < 1000*netemLate
		case "rate", "tcp":
			off := v["wire_bps"]/v["asked_bps"] - 1
			right = off <= netemRate && (off >= -netemRate || v["asked_bps"] > netemSure)
		}
		if row.Error != "" || !right {
			t.Errorf("%s, %s asked: %s %s", row.What, row.Asked, row.Got, row.Error)
		}
	}
}
