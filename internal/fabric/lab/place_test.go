package lab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// testPlace is the place of a lab that does not exist.
func testPlace(t *testing.T) place {
	t.Helper()
	p, err := placeOf(uniqueName(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, path := range []string{p.stateFile(), p.logFile()} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	return p
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSweep(t *testing.T) {
	log.SetOutput(io.Discard) // of what is broken on purpose
	defer log.SetOutput(os.Stderr)
	for _, test := range []struct {
		name, content string
		locked        bool
	}{
		{"dead", `{"lab":"x"}`, false},
		{"dead before it was written", "", false},
		{"broken", "\x00\xff{", false},
		{"alive", `{"lab":"x"}`, true},
		{"alive and broken", "{", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := testPlace(t)
			for _, path := range []string{p.stateFile(), p.logFile()} {
				if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.locked {
				f, err := p.lock(false)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
			}
			if err := Sweep(); err != nil {
				t.Fatal(err)
			}
			if exists(p.stateFile()) != test.locked || exists(p.logFile()) != test.locked {
				t.Errorf("state file there: %v, log: %v; want both %v", exists(p.stateFile()), exists(p.logFile()), test.locked)
			}
		})
	}
}

// One process has the lock at a time, however many make, lock and remove the file.
func TestLockIsExclusive(t *testing.T) {
	p := testPlace(t)
	holders := make(chan struct{}, 1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				f, err := p.lock(true)
				if errors.Is(err, errLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case holders <- struct{}{}:
				default:
					t.Error("locked twice")
				}
				<-holders
				if err := os.Remove(p.stateFile()); err != nil {
					t.Error(err)
				}
				f.Close()
			}
		})
	}
	all.Wait()
}

func TestStateDirIsRefused(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root's is in /run, where nobody else may put anything")
	}
	for _, test := range []struct {
		name string
		make func(path string) error
	}{
		{"symbolic link", func(path string) error { return os.Symlink(t.TempDir(), path) }},
		{"file", func(path string) error { return os.WriteFile(path, nil, 0o600) }},
		{"writable by others", func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("XDG_RUNTIME_DIR", dir)
			if err := test.make(filepath.Join(dir, "ndklab")); err != nil {
				t.Fatal(err)
			}
			_, err := stateDir()
			wantCode(t, err, control.Unable)
		})
	}
}

func TestFirstProblem(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := firstProblem(f); !strings.Contains(got, "nothing") {
		t.Errorf("of an empty log: %q", got)
	}
	if _, err := f.WriteString("\n\nfirst\nsecond\n"); err != nil {
		t.Fatal(err)
	}
	if got := firstProblem(f); got != "first" {
		t.Errorf("got %q", got)
	}
}

// TestNoState has places that cannot hold a lab's state: the error says what to
// do.
func TestNoState(t *testing.T) {
	err := noState("state file", fmt.Errorf("write x: %w", unix.ENOSPC))
	wantCode(t, err, control.Unable)
	if want := "state file: write x: no space left on device: free some space there"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if os.Geteuid() == 0 {
		return // root's is always in the same place
	}
	shared := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", shared)
	if err := os.Mkdir(filepath.Join(shared, "ndklab"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(shared, "ndklab"), 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = placeOf("x")
	wantCode(t, err, control.Unable)
	if err == nil || !strings.HasSuffix(err.Error(), "alone: remove it") {
		t.Error(err)
	}
	// The command that comes after it says so: once is enough.
	if err := Sweep(); err != nil {
		t.Errorf("sweep: %v", err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/proc/nothing")
	_, err = placeOf("x")
	wantCode(t, err, control.Unable)
	if err == nil || !strings.HasSuffix(err.Error(), ": set XDG_RUNTIME_DIR to a directory of yours") {
		t.Error(err)
	}
}

// A lab that takes connections and says nothing, as one whose supervisor is stopped,
// is told of with what can be done about it, and nobody waits for it without end.
func TestOpenMute(t *testing.T) {
	p := testPlace(t)
	listener, err := p.bind()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	locked, err := p.reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := (state{Lab: p.name, Supervisor: 4242, Log: p.logFile()}).write(locked); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []time.Duration{0, 100 * time.Millisecond} { // it may be over before the connection is made
		_, err = open(t.Context(), p, limit)
		if want := fmt.Sprintf("lab %s does not answer: if process 4242 is its supervisor, `kill -9 4242` ends it", p.name); err == nil || err.Error() != want {
			t.Errorf("within %v: got %v, want %s", limit, err, want)
		}
	}
}

// A lab that comes up or ends while it is asked for is not named as another that is up.
func TestNotUp(t *testing.T) {
	name := testPlace(t).name
	if err := notUp(name, []Info{{Lab: "a"}, {Lab: name}, {Lab: "b"}}); err.Error() != fmt.Sprintf("lab %s is not up (a, b are)", name) {
		t.Error(err)
	}
	if err := notUp(name, []Info{{Lab: name}}); err.Error() != fmt.Sprintf("lab %s is not up (no lab is)", name) {
		t.Error(err)
	}
}

// TestEndTime: a lab that does not end is given the longer, the more nodes it has.
func TestEndTime(t *testing.T) {
	p := testPlace(t)
	locked, err := p.lock(true)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	life, err := os.Open(p.stateFile())
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	for nodes, want := range map[int]time.Duration{2: 10010 * time.Millisecond, 10_000: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := p.awaitEnd(life, nodes)
			if took := time.Since(began); err == nil || !strings.HasSuffix(err.Error(), "does not end") || took != want {
				t.Errorf("of %d nodes: %v after %v, want %v", nodes, err, took, want)
			}
		})
	}
}
