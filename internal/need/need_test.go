package need

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const envInner = "NDKLAB_TEST_NEED"

// TestInner runs in another process, for TestCheck.
func TestInner(t *testing.T) {
	if os.Getenv(envInner) == "" {
		t.Skip("TestCheck runs it")
	}
	Check(t, nil)
	Labs(t, true)
	if os.Getenv(envInner) == "labs" {
		Labs(t, false)
	} else {
		Check(t, Programs("go", "no-such-program"))
	}
	t.Error("the test goes on")
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		lacks, says, required, outcome string
		unmet                          int
	}{
		{"program", `"no-such-program"`, "", "--- SKIP", 1}, {"program", `"no-such-program"`, "1", "--- FAIL", 0},
		{"labs", "labs cannot run here", "", "--- SKIP", 1}, {"labs", "labs cannot run here", "1", "--- FAIL", 0},
	} {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestInner$")
		cmd.Env = append(os.Environ(), envInner+"="+c.lacks, Variable+"="+c.required)
		out, err := cmd.CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if text := string(out); !strings.Contains(text, c.outcome) || strings.Contains(text, "the test goes on") ||
			!strings.Contains(text, c.says) || strings.Contains(text, `"go"`) || Unmet(text) != c.unmet {
			t.Errorf("%s, required %q: %d unmet\n%s", c.lacks, c.required, Unmet(text), text)
		}
	}
}

// TestInnerTime runs in another process, for TestTime.
func TestInnerTime(t *testing.T) {
	Time(t)
	t.Log("there is time")
}

func TestTime(t *testing.T) {
	for long, want := range map[string]string{"": "it runs with NDKLAB_LONG=1", "1": "there is time"} {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestInnerTime$")
		cmd.Env = append(os.Environ(), LongVariable+"="+long)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) || Unmet(string(out)) != 0 {
			t.Errorf("%s=%q: %v\n%s", LongVariable, long, err, out)
		}
	}
}
