package hosts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
)

// asked returns a head of host1 and host2 whose launcher starts nothing, and a channel for the test to close: what comes is the
// test's.
func asked(t *testing.T) (*Head, *Launch, *Credentials, chan struct{}) {
	t.Helper()
	l, _ := launched(t, Spec{Kind: Local, Count: 2})
	l.begin.Do(func() { // before the head asks for it
		l.plan.commands = nil
		l.start()
	})
	h := headOf(t, l)
	come := make(chan struct{})
	begun, err := methodLaunch.Call(t.Context(), h.launch, nil)
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := ParseCredentials(begun.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	return h, l, credentials, come
}

// said has a worker come that says what is given, and returns the head's refusal.
func said(t *testing.T, l *Launch, c *Credentials, what hello) error {
	t.Helper()
	conn, err := tls.Dial("tcp", l.settings.Addresses[0], c.config())
	if err != nil {
		t.Fatal(err)
	}
	channel := control.OverStream(conn, func(_ context.Context, r *control.Request) (any, error) { return nil, nil })
	t.Cleanup(channel.Close)
	go beat(channel)
	if _, err := methodHello.Call(testContext(t), channel, what); err != nil {
		return err
	}
	return methodReady.Call(testContext(t), channel, nil)
}

// TestRefusals: the lab does not begin with hosts that cannot be of it, and says which and why.
func TestRefusals(t *testing.T) {
	good := hello{Name: "host1", Index: 0, Count: 2, Build: build()}
	other := good
	other.Build = "other"
	stray := good
	stray.Name = "host7"
	for _, c := range []struct {
		name   string
		hellos []hello
		want   string
		code   control.Code
	}{
		{"another build", []hello{other}, "host host1 runs another build of ndklab (other) than this one (" + build() + "): install the same program on all hosts", control.Unable},
		{"another host", []hello{stray}, "host host7 is none of the 2 that were asked for", control.Failed},
		{"one host two times", []hello{good, good}, "two workers have come as host host1, number 1: expected one a host", control.Failed},
		{"one never", []hello{good}, "host host2: not there after 1m0s; look whether it is up, and whether a firewall keeps it from 127.0.0.1:", control.Unable},
		{"none ever", nil, "hosts host1, host2: not there after 1m0s; look whether", control.Unable},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, l, credentials, come := asked(t)
			late := make(chan time.Time)
			h.after = func(time.Duration) <-chan time.Time { return late }
			if c.hellos == nil {
				close(late)
				close(come)
			} else {
				// The socket listens: they come before anybody waits for them.
				go func() {
					for i, what := range c.hellos {
						err := said(t, l, credentials, what)
						if last := i == len(c.hellos)-1; (err != nil) != (last && c.name != "one never") {
							t.Errorf("hello %d: %v", i, err)
						}
					}
					close(late)
					close(come)
				}()
			}
			_, err := h.Await(testContext(t))
			if err == nil || !strings.Contains(err.Error(), c.want) || control.CodeOf(err) != c.code {
				t.Errorf("%v, want %s", err, c.want)
			}
			<-come
		})
	}
}

// TestStranger: one without the lab's certificate says nothing to the head, and a worker nothing to another head.
func TestStranger(t *testing.T) {
	h, l, own, _ := asked(t)
	ctx, cancel := context.WithCancel(testContext(t))
	over := make(chan error, 1)
	go func() {
		_, err := h.Await(ctx)
		over <- err
	}()
	strangers, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	bare := strangers.config()
	bare.VerifyConnection = nil
	none := own.config()
	none.Certificates = nil
	for name, config := range map[string]*tls.Config{"another certificate": bare, "none": none} {
		conn, err := tls.Dial("tcp", l.settings.Addresses[0], config)
		if err != nil {
			t.Fatal(err)
		}
		// In TLS 1.3 the client learns by its first read what the server thinks of its certificate.
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the head speaks", name)
		}
		conn.Close()
	}
	if _, err := tls.Dial("tcp", l.settings.Addresses[0], strangers.config()); !errors.Is(err, errStranger) {
		t.Errorf("a worker of another lab: %v", err)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCredentialsPass: both ends of a lab have the same certificate, which is passed on as one line.
func TestCredentialsPass(t *testing.T) {
	a, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseCredentials(a.String())
	if err != nil || string(a.certificate.Certificate[0]) != string(b.certificate.Certificate[0]) {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"", "x", a.String() + "AA", strings.Repeat("!", 43)} {
		if _, err := ParseCredentials(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// TestBuild: the build ID is what the go command says of the program.
func TestBuild(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "buildid", self).Output()
	if want := strings.TrimSpace(string(out)); err != nil || build() != want {
		t.Errorf("%q, want %q, %v", build(), want, err)
	}
	for _, head := range []string{"", "\x04\x00\x00\x00Go\x00\x00", "\xff\xff\x00\x00\x04\x00\x00\x00Go\x00\x00short"} {
		if got := buildIn([]byte(head)); got != "" {
			t.Errorf("%q in %q", got, head)
		}
	}
}

// TestSecretIsNoArgument: no process of a lab shows its credentials.
func TestSecretIsNoArgument(t *testing.T) {
	l, _ := launched(t, Spec{Kind: Local, Count: 1})
	h := headOf(t, l)
	found, err := h.Await(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	w, err := methodWho.Call(t.Context(), found[0].Conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{fmt.Sprintf("/proc/%d/cmdline", w.Worker), fmt.Sprintf("/proc/%d/cmdline", w.Part), fmt.Sprintf("/proc/%d/environ", w.Part)} {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), l.settings.Credentials) {
			t.Errorf("%s has them: %v", file, err)
		}
	}
}

// TestWorkerAlone: a worker without a head says what is wrong, with its host.
func TestWorkerAlone(t *testing.T) {
	own, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	refused, err := json.Marshal(assignment{Addresses: []string{closed.Addr().String()}, Credentials: own.String(), Name: "host5", Count: 6})
	if err != nil {
		t.Fatal(err)
	}
	slurm, err := json.Marshal(assignment{Credentials: own.String()})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":              "a worker is told by `ndklab ... --hosts` what to do, and this one was not",
		"nonsense":      "a worker is told by",
		string(refused): "host host5: the head of the lab is not reached (dial tcp " + closed.Addr().String() + ": connect: connection refused): a firewall between hosts has to let its port pass",
		string(slurm):   "SLURMD_NODENAME is not set, expected to be started by srun",
	} {
		cmd := exec.Command("/proc/self/exe", workerCommand)
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s, want %s", text, err, out, want)
		}
	}
}

// program puts one that a shell runs where programs are looked for, and returns its folder.
func program(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// TestSSH: workers get what they are told on standard input, and what ssh says of a host that is not reached is told.
func TestSSH(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The host is the sixth argument. The rest runs here, as a shell there would.
	dir := program(t, "ssh", `
case "$6" in
away) echo "ssh: connect to host away port 22: No route to host" >&2; exit 255;;
bare) echo "sh: 1: ndklab: not found" >&2; exit 127;;
esac
shift 6
exec "$@"
`)
	if err := os.Symlink(self, filepath.Join(dir, "ndklab")); err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]string{
		"here,user@there": "",
		"here,away":       "host away: exit status 255: ssh: connect to host away port 22: No route to host: `ssh -o BatchMode=yes HOST ndklab worker` has to work without a password",
		"bare,here":       "host bare: exit status 127: sh: 1: ndklab: not found: install this build of ndklab there, in the PATH of commands by ssh",
	} {
		spec, err := Parse(names)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := launched(t, spec)
		h := headOf(t, l)
		found, err := h.Await(testContext(t))
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", names, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", names, err)
			continue
		}
		for i, host := range found {
			w, err := methodWho.Call(t.Context(), host.Conn, nil)
			if err != nil || w.Host != spec.Names[i] || host.Name != w.Host {
				t.Errorf("%+v, %v", w, err)
			}
		}
	}
}

// TestNoLauncher: a launcher that is not installed is told.
func TestNoLauncher(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	l, _ := launched(t, Spec{Kind: SSH, Names: []string{"a"}})
	h := headOf(t, l)
	_, err := h.Await(testContext(t))
	if want := `host a: exec: "ssh": executable file not found in $PATH: run ndklab where this program is installed`; err == nil || !strings.Contains(err.Error(), want) || control.CodeOf(err) != control.Unable {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestGuardianDies: the lab goes on without its guardian, and ends with its head.
func TestGuardianDies(t *testing.T) {
	l, _ := launched(t, Spec{Kind: Local, Count: 2})
	h := headOf(t, l)
	found, err := h.Await(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	l.conn.Close()
	<-h.launch.Done()
	for _, host := range found {
		if _, err := methodWho.Call(t.Context(), host.Conn, nil); err != nil {
			t.Error(err)
		}
	}
	select {
	case l := <-h.Lost():
		t.Error(l.Err)
	default:
	}
}
