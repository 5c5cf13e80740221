package labtest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
)

// TestMain does nothing for labs: that is what the package promises.
func TestMain(m *testing.M) { leak.Main(m) }

// envInner has a test do what another one looks at from outside.
const envInner = "LABTEST_TEST_INNER"

// inner skips a test that is not run by another one.
func inner(t *testing.T) {
	t.Helper()
	if os.Getenv(envInner) == "" {
		t.Skip("it is run by another test")
	}
}

// innerTime bounds a test that another one runs.
const innerTime = 60 * time.Second

// again is the test binary, to run one test, with further variables.
func again(t *testing.T, test string, variables ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), innerTime)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+test+"$", "-test.v", "-test.timeout=50s")
	cmd.Env = append(os.Environ(), append(variables, envInner+"=1")...)
	return cmd
}

// Every test of this package passes for an ordinary user, too.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	cmd := exec.Command("/proc/self/exe", "-test.timeout=20m", "-test.skip=^TestExampleModule$", "-test.v")
	if !need.Long() {
		cmd.Args = append(cmd.Args, "-test.run=^Test(Conversation|Commands|Links|Evidence|Ends)$")
	}
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=", "HOME=/nonexistent", need.Variable+"=1", envArtifacts+"=")
	cmd.Dir = "/" // the user need not be able to reach this folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestConversation") {
		t.Errorf("no tests ran:\n%s", out)
	}
}
