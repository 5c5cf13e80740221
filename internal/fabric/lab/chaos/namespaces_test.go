package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// upAndDown makes a lab of three network namespaces and takes it down, again and again,
// where no more than four may be at a time. The kernel takes a while to be done with those
// of the lab before.
const upAndDown = `
echo 4 >/proc/sys/user/max_net_namespaces || exit
for lab in 1 2 3 4 5 6 7 8; do
  for try in $(seq 200); do
    if "$0" up "$1.ndklab.yaml" 2>up.log; then break; fi
    sleep 0.05
  done
  if [ $lab = 4 ]; then kill -9 $(pgrep -f "^ndklab-supervisor $1\$"); else "$0" down "$1" || exit; fi
done
echo all went`

// Network namespaces do not stay behind, which would show nowhere: where few are allowed, lab
// after lab can be made.
func TestNamespacesAreFreed(t *testing.T) {
	need.Time(t)
	if os.Geteuid() != 0 {
		t.Skip("needs a user namespace in which it is root, as outside")
	}

	trial := &trial{user: user{"root", 0}}
	trial.prepare(t, 1000) // a number that no trial has
	cmd := exec.Command("sh", "-c", upAndDown, ndklab, trial.lab)
	cmd.Env, cmd.Dir = trial.environment, trial.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "all went\n") {
		log, _ := os.ReadFile(filepath.Join(trial.dir, "up.log"))
		t.Fatalf("%v\n%s%s", err, out, log)
	}
	trial.eventually(trial.alive)
}
