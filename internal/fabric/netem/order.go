package netem

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// KeepOrder has one processor handle whatever arrives at an interface of the
// caller's network namespace, and so all that follows from it: that netem gets it,
// and that it leaves. Otherwise each packet waits at the processor on which its
// sender ran just then, or on which netem's timer fired, and those that wait at
// different ones overtake each other (net/core/dev.c, get_rps_cpu). It takes
// privilege over the whole machine, and a kernel with CONFIG_RPS.
func KeepOrder(iface string, processor int) error {
	sysfs, err := openSysfs()
	if err != nil {
		return fmt.Errorf("sysfs: %w", err)
	}
	defer unix.Close(sysfs)
	name := "devices/virtual/net/" + iface + "/queues/rx-0/rps_cpus"
	fd, err := unix.Openat(sysfs, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(mask(processor))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// mask returns one processor as sysfs has sets of them: words of 32 bits, the highest
// first.
func mask(processor int) string {
	return fmt.Sprintf("%x", 1<<(processor%32)) + strings.Repeat(",00000000", processor/32)
}

// openSysfs opens a sysfs that shows the caller's network namespace, mounted nowhere.
func openSysfs() (int, error) {
	config, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(config)
	if err := unix.FsconfigCreate(config); err != nil {
		return -1, err
	}
	return unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}
