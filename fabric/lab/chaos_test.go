package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// chaosSeed seeds the moments of TestChaos; a failure is repeated with it as far
// as the machine's timing allows.
const chaosSeed = 1

// chaosTrials is how often TestChaos kills something.
const chaosTrials = 24

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

// Whatever is killed, and whenever: two seconds after the command that owns the
// lab has gone there is nothing of it but files, which the next command sweeps,
// and a lab of the same name comes up at once.
func TestChaos(t *testing.T) {
	random := rand.New(rand.NewPCG(chaosSeed, 0))
	name := uniqueName(t)
	victims := []string{"command", "interrupt", "terminate", "ndklab-guardian", "ndklab-supervisor", "ndklab-linkem", "ndklab-node"}
	for trial := range chaosTrials {
		victim := victims[trial%len(victims)]
		kind := []string{"plain", "impaired", "external", "fabric"}[random.IntN(4)]
		if victim == "ndklab-linkem" {
			kind = "impaired"
		}
		after := time.Duration(random.Int64N(int64(80 * time.Millisecond)))
		again := random.IntN(2) == 0
		t.Run(fmt.Sprintf("%s-after-%v-%s-again-%v", victim, after, kind, again), func(t *testing.T) {
			cmd := startCommand(t, "up "+name+" "+kind)
			<-time.After(after)
			strike(t, cmd, name, victim)
			if again { // while the lab is being taken down
				<-time.After(time.Duration(random.Int64N(int64(5 * time.Millisecond))))
				strike(t, cmd, name, victims[random.IntN(len(victims))])
			}
			// Whatever the lab has made of it, the command's end is to be the lab's.
			_ = cmd.Process.Kill() // it may have ended
			<-cmd.ended
			eventually(t, 2*time.Second, func() string {
				return withoutFiles(remains(t, name))
			})
			// Another command on this machine may just have looked at the files, when
			// the lab was still there, and a sweep leaves those to it.
			eventually(t, 2*time.Second, func() string {
				if err := Sweep(); err != nil {
					t.Fatal(err)
				}
				return remains(t, name)
			})
		})
	}
	start(t, ring(name, 2))
}

// strike kills or signals the victim, if there is one yet.
func strike(t testing.TB, cmd *command, name, victim string) {
	t.Helper()
	var err error
	switch victim {
	case "command":
		err = cmd.Process.Kill()
	case "interrupt":
		err = cmd.Process.Signal(unix.SIGINT)
	case "terminate":
		err = cmd.Process.Signal(unix.SIGTERM)
	default:
		for _, p := range processes(name) {
			if strings.HasPrefix(p.args, victim+" ") {
				err = unix.Kill(p.pid, unix.SIGKILL)
				break
			}
		}
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// withoutFiles leaves out of what remains the files, which are inert.
func withoutFiles(rest string) string {
	var left []string
	for item := range strings.SplitSeq(rest, ", ") {
		if strings.HasPrefix(item, "process") || strings.HasPrefix(item, "socket") {
			left = append(left, item)
		}
	}
	return strings.Join(left, ", ")
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
	eventually(t, 2*time.Second, func() string { return remains(t, name) })
}

// A killed supervisor takes its lab along, and its guardian removes the rest.
func TestSupervisorDies(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-supervisor"))
	<-l.Done()
	eventually(t, 2*time.Second, func() string { return remains(t, topo.Name) })
	if _, err := l.Inspect(testContext(t)); err == nil {
		t.Error("a dead lab answers")
	}
}

// What both guardian and supervisor leave when they are killed, the next command
// removes.
func TestGuardianAndSupervisorDie(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].CPU = 0.5
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-guardian"))
	kill(t, processOf(t, topo.Name, "ndklab-supervisor"))
	<-l.Done()
	eventually(t, 2*time.Second, func() string {
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
