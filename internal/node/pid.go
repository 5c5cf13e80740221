package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PIDIn returns the process id that a process of the caller's has in the PID namespace of
// proc, a /proc. The kernel translates it: there it shows the process of a pidfd.
func PIDIn(proc *os.File, pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	defer unix.Close(fd)
	info, err := unix.Openat(int(proc.Fd()), "self/fdinfo/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	defer unix.Close(info)
	buf := make([]byte, 1024)
	n, err := unix.Read(info, buf)
	if err != nil {
		return 0, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	for line := range strings.Lines(string(buf[:n])) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("pidfd of %d: the kernel tells no process id", pid)
}
