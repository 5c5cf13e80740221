package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"golang.org/x/sys/unix"
)

// Booting takes 4 to 16 s, and everything in the guest some thirty times what it
// would without emulation. The longest is a thousand rounds of rping with loss: five
// minutes on an idle machine, mostly for rxe's timeouts, and three times as much on
// a busy one.
const (
	bootTime    = 5 * time.Minute
	commandTime = 30 * time.Minute
)

// A guest is a virtual machine that is the foreign node of a lab. It has the
// external's addresses.
type guest struct {
	name    string
	mac     net.HardwareAddr
	capture string // the file in which QEMU records its network card's frames
}

var guests atomic.Int32 // how many were booted

// boot boots a guest at an external, and ends it with the test.
func boot(t *testing.T, x report.External, network ...string) guest {
	t.Helper()
	dir, err := os.MkdirTemp("", "ndklab-interop-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what crossed the guest's network card is in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	g := guest{
		name:    fmt.Sprintf("ndklab-%d-%d", os.Getpid(), guests.Add(1)),
		mac:     net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1},
		capture: filepath.Join(dir, "guest.pcap"),
	}
	args := []string{g.name, "--mtu", fmt.Sprint(x.MTU), "--mac", g.mac.String(), "--pcap", g.capture,
		"--while", fmt.Sprint(os.Getpid())}
	for _, a := range x.Addresses {
		args = append(args, "--ip", a)
	}
	t.Cleanup(func() { script(t, commandTime, "stop", "--purge", g.name) })
	script(t, bootTime, "boot", append(args, network...)...)
	g.unhurried(t)
	return g
}

// unhurried has the guest's network card queue whatever it is given. The default,
// fq_codel, drops what has waited for long, which an emulated machine that gets no
// processor makes everything do.
func (g guest) unhurried(t *testing.T) {
	g.run(t, "tc qdisc replace dev eth0 root pfifo limit 10000")
}

// bySockets boots a guest that exchanges frames with the relay.
func bySockets(t *testing.T, x report.External) guest {
	return boot(t, x, "--netdev", "dgram,local.type=unix,local.path="+x.PeerSocket+",remote.type=unix,remote.path="+x.Socket)
}

// byTap boots a guest with a tap in the external's namespace, bridged with the
// interface there.
func byTap(t *testing.T, x report.External) guest {
	if os.Geteuid() != 0 {
		t.Skip("only root makes taps")
	}
	_, iface, _ := strings.Cut(x.Endpoint, ":")
	ip := func(command string) error {
		out, err := exec.Command("ip", append([]string{"-n", x.Namespace}, strings.Fields(command)...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
		return nil
	}
	if ip("link show br0") != nil { // not even from a guest before
		for _, command := range []string{"link add br0 type bridge", "link set br0 mtu " + fmt.Sprint(x.MTU) + " addrgenmode none up", "link set " + iface + " master br0"} {
			if err := ip(command); err != nil {
				t.Fatal(err)
			}
		}
	}
	return boot(t, x, "--netns", x.Namespace, "--bridge", "br0")
}

// run runs a command in the guest, which must succeed, and returns its output.
func (g guest) run(t *testing.T, command string) string {
	t.Helper()
	out, err := g.start(command)()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start starts a command in the guest. wait returns its output, and an error that
// wraps a failedScript, which has it too.
func (g guest) start(command string) (wait func() (string, error)) {
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := runScript(commandTime+10*time.Second, "run", "-t", fmt.Sprintf("%.0f", commandTime.Seconds()), g.name, command)
		if err != nil {
			err = fmt.Errorf("guest: %s: %w", command, err)
		}
		done <- result{out, err}
	}()
	return func() (string, error) { r := <-done; return r.out, r.err }
}

// listens waits until a program in the guest listens at an address for
// connections by rdma_cm.
func (g guest) listens(t *testing.T, at netip.AddrPort) {
	t.Helper()
	g.run(t, fmt.Sprintf("timeout 300 bash -c \"until rdma resource show cm_id | grep -F 'state LISTEN' | grep -qF ':%d'; do sleep 0.1; done\"", at.Port()))
}

func script(t *testing.T, limit time.Duration, name string, args ...string) {
	t.Helper()
	if _, err := runScript(limit, name, args...); err != nil {
		t.Error(err)
		t.FailNow()
	}
}

// A failedScript is one of the harness's scripts that has failed.
type failedScript struct {
	name    string
	cause   error
	status  int    // that it exited with, -1 if it did not
	printed string // its output, then its error output
}

func (f *failedScript) Error() string { return fmt.Sprintf("%s: %v\n%s", f.name, f.cause, f.printed) }
func (f *failedScript) Unwrap() error { return f.cause }

// runScript runs one of the harness's scripts. The error is a failedScript.
func runScript(limit time.Duration, name string, args ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "rxeguest/"+name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 30 * time.Second // a guest in the background may hold the pipes
	if err := cmd.Run(); err != nil {
		return stdout.String(), &failedScript{name, err, cmd.ProcessState.ExitCode(), stdout.String() + stderr.String()}
	}
	return stdout.String(), nil
}

// TestGuestOfDeadProcess: a guest does not outlive whoever booted it, even if that
// was killed.
func TestGuestOfDeadProcess(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	owner := exec.Command("cat") // until its input ends
	input, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("ndklab-%d-orphan", os.Getpid())
	t.Cleanup(func() { script(t, bootTime, "stop", "--purge", name) })
	out, err := runScript(bootTime, "boot", name, "--no-net", "--while", fmt.Sprint(owner.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(out), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	machine, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(machine)
	if err := errors.Join(input.Close(), owner.Wait()); err != nil {
		t.Fatal(err)
	}
	ended := []unix.PollFd{{Fd: int32(machine), Events: unix.POLLIN}}
	n, err := unix.Poll(ended, int(time.Minute.Milliseconds()))
	for err == unix.EINTR {
		n, err = unix.Poll(ended, int(time.Minute.Milliseconds()))
	}
	if n != 1 {
		t.Errorf("the guest of a process that has ended is still there (%v)", err)
	}
}
