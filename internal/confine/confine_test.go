package confine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const envChild, envKind = "NDKLAB_TEST_CONFINED", "NDKLAB_TEST_CONFINED_EXCEPT_FILES"

// TestMain is the confined process, too.
func TestMain(m *testing.M) {
	folder := os.Getenv(envChild)
	if folder == "" {
		os.Exit(m.Run())
	}
	if err := confined(folder, os.Getenv(envKind) != ""); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// confined confines this process, and tries out in a folder what it can and cannot do then.
func confined(folder string, exceptFiles bool) error {
	kept, err := os.Create(filepath.Join(folder, "kept"))
	if err != nil {
		return err
	}
	var meeting, over sync.WaitGroup // threads that are there before
	release := make(chan struct{})
	for range 8 {
		meeting.Add(1)
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			meeting.Done()
			<-release
		})
	}
	meeting.Wait()
	confine := Process
	if exceptFiles {
		confine = ExceptFiles
	}
	if err := confine(); err != nil {
		return err
	}
	var wrong error
	for _, number := range refused(exceptFiles) {
		if _, _, errno := unix.RawSyscall6(uintptr(number), 0, 0, 0, 0, 0, 0); errno != unix.EPERM {
			wrong = errors.Join(wrong, fmt.Errorf("system call %d: %w", number, errno))
		}
	}
	ofFiles := map[string]func() error{
		"change a file": func() error { _, err := os.OpenFile(filepath.Join(folder, "kept"), os.O_WRONLY, 0); return err },
		"remove a file": func() error { return unix.Unlinkat(unix.AT_FDCWD, filepath.Join(folder, "other"), 0) },
	}
	for what, f := range ofFiles {
		if err := f(); errors.Is(err, unix.EPERM) == exceptFiles || exceptFiles && err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", what, err))
		}
	}
	for what, f := range map[string]func() error{
		"start a program":        func() error { return exec.Command("/proc/self/exe").Run() },
		"make a file":            func() error { return os.WriteFile(filepath.Join(folder, "new"), nil, 0o600) },
		"empty a file":           func() error { return os.Truncate(filepath.Join(folder, "kept"), 0) },
		"make a file of no name": func() error { _, err := os.OpenFile(folder, unix.O_TMPFILE|os.O_RDWR, 0o600); return err },
		"make a namespace": func() error {
			_, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER, 0, 0, 0, 0, 0)
			return errno
		},
	} {
		if err := f(); !errors.Is(err, unix.EPERM) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", what, err))
		}
	}
	if _, _, errno := unix.RawSyscall6(unix.SYS_CLONE3, 0, 0, 0, 0, 0, 0); errno != unix.ENOSYS {
		wrong = errors.Join(wrong, fmt.Errorf("clone3: %w", errno))
	}
	close(release)
	over.Wait()
	for what, f := range map[string]func() error{
		"write to a file that it has": func() error { _, err := kept.WriteString("kept"); return err },
		"read a file":                 func() error { _, err := os.ReadFile("/proc/self/status"); return err },
		"make a socket":               func() error { l, err := net.Listen("tcp", "127.0.0.1:0"); return errors.Join(err, l.Close()) },
		"make threads": func() error {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { runtime.LockOSThread() }) // the thread ends with it
			}
			all.Wait()
			return nil
		},
	} {
		if err := f(); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", what, err))
		}
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) < 2 {
		wrong = errors.Join(wrong, err, fmt.Errorf("%d threads", len(threads)))
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil || !strings.Contains(string(text), "\nNoNewPrivs:\t1\n") || !strings.Contains(string(text), "\nSeccomp:\t2\n") {
			wrong = errors.Join(wrong, fmt.Errorf("thread %s is not confined: %w", thread, err))
		}
	}
	return wrong
}

// TestProcess: a confined process can do what an engine does, and none of what is refused, in any of its threads. One of
// the other kind can open and remove files, too.
func TestProcess(t *testing.T) {
	for kind, left := range map[string]int{"": 2, "except files": 1} {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "other"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(os.Environ(), envChild+"="+folder, envKind+"="+kind)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			files, err := os.ReadDir(folder)
			if text, readErr := os.ReadFile(filepath.Join(folder, "kept")); string(text) != "kept" || len(files) != left || errors.Join(err, readErr) != nil {
				t.Errorf("%q and %d files, %v", text, len(files), errors.Join(err, readErr))
			}
		})
	}
}
