package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A process is found by the name that package lab gives it, and what it uses is read.
func TestOfLab(t *testing.T) {
	const lab = "bench-process-test"
	if found, err := OfLab(lab); err == nil || !strings.Contains(err.Error(), lab) {
		t.Fatal(found, err)
	}
	cmd := exec.Command("cat")
	cmd.Args = []string{"ndklab-node " + lab + "/h1"}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := input.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := input.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 1)); err != nil { // it has run
		t.Fatal(err)
	}
	all, err := OfLab(lab)
	if err != nil || len(all) != 1 || len(all.Of("ndklab-node")) != 1 || len(all.Of("ndklab-linkem")) != 0 {
		t.Fatal(all, err)
	}
	cpu, err := all.CPU()
	if err != nil || cpu <= 0 {
		t.Error(cpu, err)
	}
	resident, err := all[0].Resident()
	pss, pssErr := all[0].PSS()
	if err != nil || pssErr != nil || pss <= 0 || resident < pss || resident > float64(1<<20) {
		t.Error(resident, err, pss, pssErr)
	}
	if _, err := all[0].read("/status", "none:"); err == nil || os.IsNotExist(err) {
		t.Error(err)
	}
}
