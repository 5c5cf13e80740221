package differential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/need"
)

// runs is the number of runs of a lab that all have to do worse than its simulation.
const runs = 3

// TestSimulationForetellsLab runs trials in virtual time and as labs.
func TestSimulationForetellsLab(t *testing.T) {
	need.Time(t)
	differ := 0
	for n := *seed; n < *seed+uint64(*trials); n++ {
		d := draw(n)
		if !t.Run(fmt.Sprint(n), d.run) {
			differ++
			t.Logf("again: make differential TRIALS=1 SEED=%d\n%s", n, d.text)
		}
	}
	t.Logf("trials: %d, from seed %d; differ: %d", *trials, *seed, differ)
}

// run holds a trial's lab against its simulation.
func (d trial) run(t *testing.T) {
	file := filepath.Join(scratch, fmt.Sprintf("%d.ndklab.yaml", d.number))
	if err := os.WriteFile(file, []byte(d.text), 0o600); err != nil {
		t.Fatal(err)
	}
	simulated := play(t, file, "--simulate")
	var last []difference
	for range runs {
		lab := play(t, file, "--name", fmt.Sprintf("differential-%d-%d", d.number, os.Getpid()))
		tell(t, simulated, lab)
		if last = differences(d.rate, simulated, lab); len(last) == 0 {
			return
		}
		for _, difference := range last {
			if difference.better {
				t.Error(difference.what)
			}
		}
		if t.Failed() {
			return
		}
	}
	for _, difference := range last {
		t.Errorf("in each of %d runs of the lab; the last: %s", runs, difference.what)
	}
}

// tell logs the figures that are compared.
func tell(t *testing.T, simulated, lab *report.Run) {
	t.Helper()
	for i := range simulated.Workloads {
		s, l := &simulated.Workloads[i], &lab.Workloads[i]
		t.Logf("%s %s, simulated and lab: messages %d %d, errors %d %d, Mb/s %.4g %.4g, us at the median %.0f %.0f",
			s.Name, s.Operation, s.Messages, l.Messages, s.Errors, l.Errors, s.Gbps*1e3, l.Gbps*1e3, s.Latency.P50, l.Latency.P50)
	}
}

// play runs a file, and returns the report. A run may fail.
func play(t *testing.T, file string, more ...string) *report.Run {
	t.Helper()
	cmd := exec.Command(ndklab, append([]string{"run", file, "-o", "json"}, more...)...)
	cmd.Dir = scratch // where the evidence of failed runs goes
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	exit := new(exec.ExitError)
	if errors.As(err, &exit) && exit.ExitCode() == 3 && !need.Required() {
		t.Skipf("no labs here: %s", strings.TrimSpace(stderr.String()))
	}
	r := new(report.Run)
	if err := errors.Join(failure(err), json.Unmarshal(out, r)); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	return r
}

// failure returns the reason why there is no report; nil if a workload or a check failed.
func failure(err error) error {
	exit := new(exec.ExitError)
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil
	}
	return err
}
