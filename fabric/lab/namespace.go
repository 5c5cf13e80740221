package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/ndklab/ndklab/control"
	"golang.org/x/sys/unix"
)

// enterNamespaces makes the namespaces that the supervisor was started in fit
// for a lab: mounts that stay inside, /proc of the lab's own processes, an empty
// folder over the state directory, and no IPv6 on interfaces made later. It
// returns the host's /proc, opened before it was covered.
func enterNamespaces(name, stateDir string) (hostProc *os.File, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("private mounts: %w", err)
	}
	if hostProc, err = os.Open("/proc"); err != nil {
		return nil, err
	}
	err = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if errors.Is(err, unix.EPERM) {
		// In a container that covers parts of /proc the kernel allows no new one.
		log.Print("the lab sees the host's /proc, because this system allows no other")
	} else if err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("ndklab", stateDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return nil, fmt.Errorf("mount %s: %w", stateDir, err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	// A middle that spoke IPv6 would talk to the nodes as if it were their peer.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none in a kernel without IPv6
		return nil, control.Errorf(control.Unable, "turn off IPv6 between the nodes: %v", err)
	}
	return hostProc, nil
}
