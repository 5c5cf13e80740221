package labtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The module that is an example passes its own tests, as a user of the package would run
// them.
func TestExampleModule(t *testing.T) {
	const dir = "../../examples/labtest"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("this is not the folder of the repository:", err)
	}
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "-timeout=120s", "-v", "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		if args[0] == "test" && !strings.Contains(string(out), "--- PASS: TestStorageSimulated") {
			t.Errorf("no tests ran:\n%s", out)
		}
	}
}
