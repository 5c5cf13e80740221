package hosts

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shell returns what a guardian has for a lab whose launcher is a script.
func shell(t *testing.T, script string) (*Launch, *safeLog) {
	t.Helper()
	log := new(safeLog)
	l, err := NewLaunch(Spec{Kind: Local, Count: 1}, "big", log)
	if err != nil {
		t.Fatal(err)
	}
	l.plan.commands = []command{{what: "launcher", args: []string{"sh", "-c", script}}}
	l.patience = 50 * time.Millisecond
	l.Begun()
	l.begin.Do(l.start)
	return l, log
}

// TestLaunchEnds though something that a launcher has started, and that nobody can end from here, holds its standard error.
func TestLaunchEnds(t *testing.T) {
	l, log := shell(t, `trap "" TERM; sleep 1000 & echo $! >&2; wait`)
	pid := 0
	for deadline := time.Now().Add(testTime); pid == 0; {
		if pid, _ = strconv.Atoi(strings.TrimSpace(log.String())); time.Now().After(deadline) {
			t.Fatal("the launcher has not begun")
		}
	}
	l.End()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("the launcher's child had ended before: %v", err)
	}
}

// TestLongLines of a launcher are cut, so that they take no more memory than there is.
func TestLongLines(t *testing.T) {
	l, log := shell(t, `head -c 1000000 /dev/zero | tr '\0' x >&2; echo end >&2`)
	<-l.over
	l.End()
	rest := 0
	for line := range bytes.Lines([]byte(log.String())) {
		if len(line) > longestLine+1 {
			t.Fatalf("a line of %d bytes", len(line))
		}
		rest += bytes.Count(line, []byte("x"))
	}
	if rest != 1_000_000 || !strings.HasSuffix(log.String(), "end\n") {
		t.Errorf("%d bytes of a million came through", rest)
	}
}

// TestManyGreetings: connections that say nothing take no more than some descriptors, and keep no worker away for good.
func TestManyGreetings(t *testing.T) {
	h, l, own, _ := asked(t)
	ctx := testContext(t)
	over := make(chan error, 1)
	go func() {
		_, err := h.Await(ctx)
		over <- err
	}()
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := open()
	var silent []net.Conn
	for range 2 * mostGreetings {
		c, err := net.Dial("tcp", l.settings.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	for deadline := time.Now().Add(testTime); len(h.greeting) < mostGreetings; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are taken", len(h.greeting))
		}
	}
	if held := open() - before - len(silent); held > mostGreetings+mostGreetings/2 {
		t.Errorf("%d connections are held, want %d at most", held, mostGreetings)
	}
	for _, c := range silent {
		c.Close()
	}
	come := make(chan error)
	for i := range 2 {
		go func() {
			come <- said(t, l, own, hello{Name: fmt.Sprint("host", i+1), Index: i, Count: 2, Build: build()})
		}()
	}
	for range 2 {
		if err := <-come; err != nil {
			t.Error(err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}
