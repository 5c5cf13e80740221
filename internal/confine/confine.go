// Package confine has a process give up for good what it never does, so that foreign bytes which find a fault in it gain little.
//
// Such a process starts no program, changes no file by its name, gets into no other process and no other namespace, mounts nothing and
// loads nothing into the kernel; nor does it get rights by which it could. It keeps the files and sockets that it has, and may
// read files, make sockets and threads, and take files that others send to it. One kind may also write to files, and remove some.
//
// A seccomp filter does it (seccomp(2)), which needs no rights. A call that is refused fails with EPERM. System calls that are always allowed cost nothing
// measurable since kernel 5.11, which remembers them.
//
// Start reading at Process.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Wanted reports whether processes are to be confined. One with GOCOVERDIR in the environment counts what it runs, and writes a file
// there at its end.
func Wanted() bool { return os.Getenv("GOCOVERDIR") == "" }

// Process confines this process, with all threads that it has and will have. A kernel without seccomp filters leaves it as it is, which is no error,
// and so it is if that is not Wanted.
func Process() error { return process(false) }

// ExceptFiles is Process, but for that files that there are may be opened to write, and be removed. Landlock says which (package ui).
func ExceptFiles() error { return process(true) }

func process(exceptFiles bool) error {
	if !Wanted() {
		return nil
	}
	program := filter(exceptFiles)
	runtime.LockOSThread() // the flag of this thread goes to the others with the filter
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: no new privileges: %w", err)
	}
	of := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&of)))
	runtime.KeepAlive(program)
	switch {
	case errno == unix.ENOSYS, errno == unix.EINVAL:
		return nil
	case errno != 0:
		return fmt.Errorf("confine: %w", errno)
	case thread != 0:
		return errors.New("confine: a thread has another filter")
	}
	return nil
}

// Places in what a filter sees (struct seccomp_data). Arguments have 64 bits, the lower half first on both architectures.
const (
	atNumber = 0
	atArch   = 4
	atFirst  = 16
	argument = 8
)

// Flags of arguments that are refused.
const (
	makes      = unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY
	writes     = unix.O_WRONLY | unix.O_RDWR | makes
	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// filter returns the program that decides about system calls.
func filter(exceptFiles bool) []unix.SockFilter {
	const load, equal, atLeast, anyOf, verdict = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	const allow, refuse = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	p := []unix.SockFilter{
		{Code: load, K: atArch},
		{Code: equal, K: architecture, Jt: 1},
		{Code: verdict, K: unix.SECCOMP_RET_KILL_PROCESS}, // numbers that mean something else
		{Code: load, K: atNumber},
		{Code: atLeast, K: foreignNumbers, Jf: 1},
		{Code: verdict, K: refuse},
	}
	for _, number := range often {
		p = append(p, unix.SockFilter{Code: equal, K: number, Jf: 1}, unix.SockFilter{Code: verdict, K: allow})
	}
	opens := uint32(writes)
	if exceptFiles {
		opens = makes
	}
	for _, number := range refused(exceptFiles) {
		p = append(p, unix.SockFilter{Code: equal, K: number, Jf: 1}, unix.SockFilter{Code: verdict, K: refuse})
	}
	for _, with := range []struct{ number, place, flags uint32 }{
		{unix.SYS_OPENAT, 2, opens}, {unix.SYS_CLONE, 0, namespaces},
	} {
		p = append(p,
			unix.SockFilter{Code: equal, K: with.number, Jf: 4},
			unix.SockFilter{Code: load, K: atFirst + argument*with.place},
			unix.SockFilter{Code: anyOf, K: with.flags, Jf: 1},
			unix.SockFilter{Code: verdict, K: refuse},
			unix.SockFilter{Code: verdict, K: allow},
		)
	}
	// As a kernel would that has no such call, whose flags a filter does not see: the Go runtime and glibc go on with clone.
	p = append(p, unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1}, unix.SockFilter{Code: verdict, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	return append(p, unix.SockFilter{Code: verdict, K: allow})
}
