package programs

import (
	"context"
	_ "embed" // of the guest
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/need"
)

// guestSource is a guest that checks and fills its memory, and says so letter by letter.
//
//go:embed testdata/guest.c
var guestSource []byte

// TestMigration has QEMU migrate a running guest from node to node by RDMA, over a link that loses packets. The guest's
// letters go on at the destination where they ended at the source: its registers and its memory are there.
func TestMigration(t *testing.T) {
	fit(t)
	need.Check(t, need.Programs(qemu, "gcc"))
	work := t.TempDir()
	t.Setenv("WORK", work)
	buildGuest(t, filepath.Join(work, "guest"))
	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").
		Link("server", "client", labtest.MTU(4200), labtest.Delay(100*time.Microsecond), labtest.Loss(0.001)))
	ctx, cancel := context.WithTimeoutCause(l.Context(), pairTime, errors.New("it takes too long"))
	defer cancel()

	to := startMachine(ctx, t, l, "server", "-incoming rdma:SERVER:4444")
	to.awaitReady("")
	from := startMachine(ctx, t, l, "client", "")
	from.awaitLetters(3)
	from.ask("migrate -d rdma:" + l.Node("server").Address().String() + ":4444")
	l.Eventually(func() error { return from.migrated() })
	to.awaitLetters(3 * letters) // more than once over all of them

	all := from.letters() + to.letters()
	for i := range all {
		if all[i] != 'a'+byte(i%letters) {
			t.Errorf("the guest's letter %d is wrong, the source's are %q, the destination's %q", i, from.letters(), to.letters())
			break
		}
	}
	if arrived := l.Node("server").Counters()["RDMAInOctets"]; arrived < guestMemory {
		t.Errorf("%d bytes have arrived by RDMA, want the guest's %d at least", arrived, guestMemory)
	}
	for _, m := range []*machine{from, to} {
		m.ask("quit")
		if err := m.wait(); err != nil {
			t.Errorf("%v\n%s", err, m.output.String())
		}
	}
}

const (
	qemu        = "qemu-system-x86_64"
	letters     = 26
	guestMemory = 8 << 20 // what it fills
)

// buildGuest compiles the guest.
func buildGuest(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file+".c", guestSource, 0o644); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("gcc", "-m32", "-O2", "-Wall", "-Werror", "-ffreestanding", "-fno-pic", "-fno-stack-protector",
		"-fno-asynchronous-unwind-tables", "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x100000,--build-id=none", "-o", file, file+".c")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// A machine is QEMU in a node, with the guest.
type machine struct {
	*end
	monitor *os.File // its standard input
	debug   string   // the file with the guest's letters
}

func startMachine(ctx context.Context, t *testing.T, l *labtest.Lab, node, options string) *machine {
	t.Helper()
	file := filepath.Join(os.Getenv("WORK"), node)
	monitor := makePipe(t, file+".monitor")
	command := fmt.Sprintf("exec %s -machine pc -accel tcg -m 32 -nodefaults -display none -kernel $WORK/guest "+
		"-debugcon file:%s.letters -monitor stdio %s <>%s.monitor", qemu, file, options, file)
	return &machine{start(ctx, t, l, node, command), monitor, file + ".letters"}
}

// ask has the machine's monitor do something.
func (m *machine) ask(command string) {
	m.t.Helper()
	if _, err := m.monitor.WriteString(command + "\n"); err != nil {
		m.t.Fatal(err)
	}
}

var migrationStatus = regexp.MustCompile(`Migration status: (\w+)`)

// migrated is nil if the monitor says that the guest has been migrated. It asks for that until then.
func (m *machine) migrated() error {
	m.ask("info migrate")
	told := migrationStatus.FindAllStringSubmatch(m.output.String(), -1)
	if len(told) == 0 {
		return errors.New("the monitor does not tell of a migration")
	}
	switch status := told[len(told)-1][1]; status {
	case "completed":
		return nil
	case "failed", "cancelled":
		m.t.Fatalf("the migration has %s:\n%s", status, m.output.String())
		return nil
	default:
		return errors.New("the migration is " + status)
	}
}

// letters returns the text that the guest has printed so far.
func (m *machine) letters() string {
	said, _ := os.ReadFile(m.debug) // of a machine that has not begun there is none
	return strings.TrimSpace(string(said))
}

// awaitLetters waits until the guest has said so many.
func (m *machine) awaitLetters(n int) {
	m.t.Helper()
	m.lab.Eventually(func() error {
		select {
		case <-m.read:
			m.t.Fatalf("%s has ended:\n%s", m.node, m.output.String())
		default:
		}
		if said := m.letters(); len(said) < n {
			return fmt.Errorf("the guest at the %s has said %q", m.node, said)
		}
		return nil
	})
}
