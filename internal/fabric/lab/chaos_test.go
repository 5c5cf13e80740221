package lab

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// A command is a process of its own that starts a lab, as ndklab up does.
type command struct {
	*exec.Cmd
	out   *bufio.Reader
	stdin io.WriteCloser
	ended chan struct{} // closed when it has been waited for
}

func startCommand(t testing.TB, program string) *command {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = programEnv(program)
	return startProcess(t, cmd)
}

func startProcess(t testing.TB, cmd *exec.Cmd) *command {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, theirs := pipe(t)
	cmd.Stdout = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c := &command{Cmd: cmd, out: bufio.NewReader(stdout), stdin: stdin, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // it is killed, or fails because of what is
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-c.ended
	})
	return c
}

// An interrupted command leaves nothing at all, not even files.
func TestInterrupt(t *testing.T) {
	name := uniqueName(t)
	cmd := startCommand(t, "up "+name+" impaired")
	if line, err := cmd.out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-cmd.ended
	if rest := remains(t, name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}

// A lab that its command has released outlives it, and its guardian.
func TestGuardianDies(t *testing.T) {
	name := uniqueName(t)
	cmd := startCommand(t, "up "+name+" plain")
	if line, err := cmd.out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	if _, err := cmd.stdin.Write([]byte("release\n")); err != nil {
		t.Fatal(err)
	}
	<-cmd.ended
	kill(t, processOf(t, name, "ndklab-guardian"))
	if err := Sweep(); err != nil { // which must not touch it
		t.Fatal(err)
	}
	l, err := Open(testContext(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	// The supervisor lets go of the state file before the kernel ends the agents,
	// and no guardian has waited for that.
	eventually(t, testTime, func() string { return remains(t, name) })
}

// A killed supervisor takes its lab along, and its guardian removes the rest.
func TestSupervisorDies(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-supervisor"))
	<-l.Done()
	eventually(t, testTime, func() string { return remains(t, topo.Name) })
	if _, err := l.Inspect(testContext(t)); err == nil {
		t.Error("a dead lab answers")
	}
}

// The next command removes what guardian and supervisor leave when both are killed.
func TestGuardianAndSupervisorDie(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].CPU = 0.5
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-guardian"))
	kill(t, processOf(t, topo.Name, "ndklab-supervisor"))
	<-l.Done()
	eventually(t, testTime, func() string {
		if err := Sweep(); err != nil {
			t.Fatal(err)
		}
		return remains(t, topo.Name)
	})
}

// Sweeping while labs start and end does not disturb them.
func TestSweepWhileLabsStart(t *testing.T) {
	done, swept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		for {
			if err := Sweep(); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	topo := ring(uniqueName(t), 2)
	for range 5 {
		l, err := Start(testContext(t), topo, Options{})
		if err != nil {
			t.Error(err)
			break
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	<-swept
	if rest := remains(t, topo.Name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}

// Down of a lab whose supervisor is stopped says how to end it, and does not wait for ever.
func TestDownOfStoppedSupervisor(t *testing.T) {
	t.Parallel() // it waits
	topo := ring(uniqueName(t), 2)
	started := start(t, topo)
	supervisor := processOf(t, topo.Name, supervisorName)
	stop(t, supervisor)
	defer process{supervisor, supervisorName + " " + topo.Name}.signal(t, unix.SIGCONT)
	err := started.Down(testContext(t))
	wantCode(t, err, control.Failed)
	if want := fmt.Sprintf("`kill -9 %d` ends it", supervisor); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
