package linkem

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// prioritise gives the process's threads the priority to be woken as promptly as this machine
// permits. Every step may be refused, and the engine works without it: the report shows the
// delays that were measured.
//
// It applies to all threads, not just the loop's: those of the Go runtime hold locks that the
// loop's thread needs after a wait, and at normal priority on a busy machine they hold it up.
// Threads made later inherit from those that make them.
//
// Real-time priority needs CAP_SYS_NICE in the initial user namespace (and real
// time in the cgroup, where the kernel groups it). A thread can ask for two other
// things: a short time slice, which gets it an earlier turn (fair scheduler, Linux
// 6.12), and a better nice value.
func prioritise() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("threads: %w", err)
	}
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			prioritiseThread(tid)
		}
	}
	return nil
}

func prioritiseThread(tid int) {
	if unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0) == nil {
		return
	}
	const nice = -20
	fair := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: nice, Runtime: uint64(100 * time.Microsecond)}
	if unix.SchedSetAttr(tid, &fair, 0) == nil {
		return
	}
	fair.Nice = 0
	_ = unix.SchedSetAttr(tid, &fair, 0) // refused at worst
}
