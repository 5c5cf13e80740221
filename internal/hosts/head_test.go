package hosts

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// TestLocal: workers come in order with what their hosts have, and requests pass between head and parts both ways.
func TestLocal(t *testing.T) {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		t.Fatal(err)
	}
	h, found, all := come(t, Spec{Kind: Local, Count: 3})
	for i, host := range found {
		if whole := machine.Totalram * uint64(machine.Unit); host.Memory > whole/3 {
			t.Errorf("host %s may have %d bytes of the %d that three share", host.Name, host.Memory, whole)
		}
		name := fmt.Sprintf("host%d", i+1)
		if host.Name != name || host.Index != i || host.Address != "127.0.0.1" || host.CPUs != cpus() || host.Memory == 0 || host.Trip <= 0 {
			t.Errorf("%+v", host)
		}
		if diff := cmp.Diff(who{"big", name, all[i].Part, all[i].Worker}, all[i]); diff != "" {
			t.Error(diff)
		}
		got, err := methodName.Call(t.Context(), host.Conn, "part")
		if want := fmt.Sprintf("part of %s, %d", name, i); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	h.End()
	for _, w := range all {
		gone(t, w.Part, w.Worker)
	}
	select {
	case l := <-h.Lost():
		t.Errorf("an end that is ours is a loss: %v", l.Err)
	default:
	}
}

// TestLoss: what befalls one host is told with its name, and the others end with the head.
func TestLoss(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(t *testing.T, host *Host, w who)
		want string
	}{
		{"the worker is killed", func(t *testing.T, _ *Host, w who) { kill(t, w.Worker, unix.SIGKILL) }, "host host2 is gone: its process has ended (host host2: signal: killed)"},
		{"the part is killed", func(t *testing.T, _ *Host, w who) { kill(t, w.Part, unix.SIGKILL) }, "host host2 is gone: its part has ended: signal: killed"},
		{"the part ends", func(t *testing.T, host *Host, _ who) {
			if err := methodExit.Call(t.Context(), host.Conn, 0); err == nil {
				t.Error("a request that was not answered did not fail")
			}
		}, "host host2 is gone: its part has ended"},
		{"the worker is told to end", func(t *testing.T, _ *Host, w who) { kill(t, w.Worker, unix.SIGTERM) }, "host host2 is gone: its worker got SIGTERM"},
		{"the part is stopped", func(t *testing.T, _ *Host, w who) { kill(t, w.Part, unix.SIGSTOP) }, "host host2 is gone: its part has not answered for 3s: its process was stopped"},
		{"the worker is stopped", func(t *testing.T, _ *Host, w who) { kill(t, w.Worker, unix.SIGSTOP) },
			"host host2 is gone: nothing was heard for 3s: its process was stopped, or the network between is gone"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			h, found, all := come(t, Spec{Kind: Local, Count: 3})
			c.do(t, found[1], all[1])
			if text := lostText(t, h); !strings.Contains(text, c.want) {
				t.Errorf("lost: %s, want %s", text, c.want)
			}
			h.End()
			if c.what == "the worker is stopped" {
				kill(t, all[1].Worker, unix.SIGCONT)
			}
			for _, w := range all {
				gone(t, w.Part, w.Worker)
			}
		})
	}
}

func kill(t *testing.T, pid int, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Error(err)
	}
}

// TestHeadDies: of a head that is killed, or stopped, nothing is left.
func TestHeadDies(t *testing.T) {
	for name, s := range map[string]unix.Signal{"killed": unix.SIGKILL, "stopped": unix.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := launched(t, Spec{Kind: Local, Count: 2})
			files := l.Files()
			cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"head"}, Env: append(os.Environ(), envRole+"=head"), Stderr: os.Stderr, ExtraFiles: files[:]}
			said, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			l.Begun()
			defer func() {
				// It fails of one that has ended.
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			var pids []int
			lines := bufio.NewScanner(said)
			for lines.Scan() && lines.Text() != "ready" {
				var worker, part int
				if _, err := fmt.Sscan(lines.Text(), &worker, &part); err != nil {
					t.Fatalf("%q: %v", lines.Text(), err)
				}
				pids = append(pids, worker, part)
			}
			if len(pids) != 4 {
				t.Fatalf("%d processes", len(pids))
			}
			kill(t, cmd.Process.Pid, s)
			gone(t, pids...)
		})
	}
}

// TestNoPart: a host on which the part does not start fails the lab, with the host's name and the reason.
func TestNoPart(t *testing.T) {
	t.Setenv(envRefuse, "host2")
	l, _ := launched(t, Spec{Kind: Local, Count: 2})
	h := headOf(t, l)
	_, err := h.Await(testContext(t))
	if want := "host2"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "this system makes no namespaces") || control.CodeOf(err) == "" {
		t.Errorf("%v, want %s", err, want)
	}
}
