package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"golang.org/x/sys/unix"
)

// probeTime bounds an examination. A machine that is only busy is no machine that hangs.
const probeTime = 30 * time.Second

const noCgroups = "absent"

// probe finds out the facts.
func probe(ctx context.Context) Facts {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	name := ownName()
	f := Facts{
		Kernel:            kernel(),
		Cores:             runtime.NumCPU(),
		Container:         container(),
		Seccomp:           status("Seccomp") == "2",
		UID:               os.Geteuid(),
		Lacking:           lab.Lacking(),
		MaxUserNamespaces: sysctl("user/max_user_namespaces", -1),
		UsernsOff:         sysctl("kernel/unprivileged_userns_clone", 1) == 0,
		Autogroup:         sysctl("kernel/sched_autogroup_enabled", 0) == 1,
		AppArmorUserns:    sysctl("kernel/apparmor_restrict_unprivileged_userns", 0) == 1,
		AppArmor:          appArmorLabel(),
		State:             attempt(lab.Sweep()),
		AbstractSocket:    attempt(tryAbstractSocket(name)),
		Cgroups:           cgroupMode(),
		Groups:            attempt(makeGroup(name)),
		Tun:               attempt(openTun()),
		SoftRoCE:          hasModule("rdma_rxe"),
		ReceiveMax:        sysctl("net/core/rmem_max", 0),
	}
	f.Programs = lookForLibraries()
	_, err := exec.LookPath("tshark")
	f.Tshark = err == nil
	f.Namespaces = attempt(f.lookInside(ctx))
	if !f.Namespaces.ok() {
		f.Userns = attempt(tryUserns(ctx))
	}
	return f
}

func lookForLibraries() Programs {
	s := verbs.Look()
	return Programs{s.Folder, attempt(s.Lacks), s.Glibc, s.Musl, s.Ibverbs, s.RDMACM, attempt(s.Unfit)}
}

// lookInside starts a child in a lab's namespaces. The error is that of starting;
// what goes wrong inside is among the facts.
func (f *Facts) lookInside(ctx context.Context) error {
	cmd := child(ctx, insidePart)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC}
	if !f.privileged() {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		mapUser(cmd.SysProcAttr)
	}
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	if err == nil {
		err = json.Unmarshal([]byte(out.String()), &f.Inside)
	}
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		f.Inside.Finished = attempt(errors.Join(ctx.Err(), fmt.Errorf("%w %s", err, first)))
	}
	return nil
}

// tryUserns starts a child in a user namespace alone.
func tryUserns(ctx context.Context) error {
	cmd := child(ctx, nothingPart)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	mapUser(cmd.SysProcAttr)
	return cmd.Run()
}

// mapUser makes the user root in a new user namespace.
func mapUser(attr *syscall.SysProcAttr) {
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

func kernel() string {
	var u unix.Utsname
	// It fails only for a bad address.
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

// container names the kind of container that this is, as far as containers say.
func container() string {
	for file, kind := range map[string]string{"/.dockerenv": "Docker", "/run/.containerenv": "Podman"} {
		if _, err := os.Stat(file); err == nil {
			return kind
		}
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return kubernetes
	}
	// systemd's convention (https://systemd.io/CONTAINER_INTERFACE).
	return os.Getenv("container")
}

// status is a field of /proc/self/status.
func status(field string) string {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// appArmorLabel is the label of this process. The file is AppArmor's alone, whichever
// security modules the kernel has; it is there since Linux 5.1 (Documentation/admin-guide/LSM).
func appArmorLabel() string {
	data, err := os.ReadFile("/proc/self/attr/apparmor/current")
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(data), "\n\x00")
}

// sysctl reads a number; absent is for a kernel that does not have it.
func sysctl(name string, absent int) int {
	data, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return absent
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return absent
	}
	return n
}

// examinations counts those of this process.
var examinations atomic.Int64

// ownName is a name that nobody else uses, not even another examination.
func ownName() string {
	return fmt.Sprintf("%s%d-%d", namePrefix, os.Getpid(), examinations.Add(1))
}

const namePrefix = "ndklab-doctor-"

// tryAbstractSocket listens on an abstract Unix socket and connects to it.
func tryAbstractSocket(name string) error {
	listener, err := net.Listen("unix", "@"+name)
	if err != nil {
		return err
	}
	defer listener.Close()
	conn, err := net.Dial("unix", "@"+name)
	if err != nil {
		return err
	}
	return conn.Close()
}

func cgroupMode() string {
	switch cgroups.Mode() {
	case cgroups.Legacy:
		return "version 1"
	case cgroups.Hybrid:
		return "version 1 and 2"
	case cgroups.Unified:
		return "version 2"
	default:
		return noCgroups
	}
}

// makeGroup makes a group as a node has it, and removes it again.
func makeGroup(name string) error {
	limits := cgroup.Limits{CPU: 0.5, Memory: 64 << 20, PIDs: 64}
	tree := cgroup.Open()
	if err := tree.Prepare(limits); err != nil {
		return err
	}
	_, err := tree.Create(name, "node", limits)
	return errors.Join(err, cgroup.Remove(name))
}

func openTun() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// hasModule reports whether the kernel has a module: loaded, built in, or where
// modprobe finds it.
func hasModule(name string) bool {
	if _, err := os.Stat("/sys/module/" + name); err == nil {
		return true
	}
	dir := filepath.Join("/lib/modules", kernel())
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		data, err := os.ReadFile(filepath.Join(dir, list))
		if err == nil && strings.Contains(string(data), "/"+name+".ko") {
			return true
		}
	}
	return false
}
