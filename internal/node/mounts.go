package node

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/mount"
	"github.com/ndklab/ndklab/topology"
)

// This file mounts what commands in a node find there and nowhere else. The mounts are made
// for the first command, so that a node that runs none does not pay for them.

var methodMount = control.NewProcedure[mountParams]("mount")

// mountParams are the mounts of a node.
type mountParams struct {
	Hosts    string // see Config
	Files    []topology.File
	Programs *programs // for RDMA; nil without
}

// Mount makes the node's mounts, unless that is done already. Exec does so before it runs a
// command. A caller that wants to know of errors earlier calls it.
func (a *Agent) Mount(ctx context.Context) error {
	if a.mounted.Load() {
		return nil
	}
	if err := methodMount.Call(ctx, a.conn, mountParams{a.cfg.Hosts, a.cfg.Files, a.cfg.programs()}); err != nil {
		return a.named(err)
	}
	a.mounted.Store(true)
	return nil
}

// mount answers Agent.Mount.
func (a *agent) mount(_ context.Context, _ *control.Request, f mountParams) error {
	a.mounting.Do(func() {
		a.prepareCommands()
		if f.Programs != nil {
			a.mountPrograms(f.Programs)
		}
		if a.mountErr = mountFiles(f.Files); a.mountErr != nil {
			return
		}
		own := slices.ContainsFunc(f.Files, func(file topology.File) bool { return file.Path == hostsFile })
		if f.Hosts != "" && !own {
			if err := mountHosts(f.Hosts); err != nil {
				fmt.Fprintf(os.Stderr, "the names of nodes do not resolve: %v\n", err)
			}
		}
	})
	return a.mountErr
}

const hostsFile = "/etc/hosts"

// mountHosts mounts the lab's hosts file over the host's, read only: it is one file for
// all nodes.
func mountHosts(hosts string) error {
	tree, err := mount.Clone(hosts)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %s read-only: %w", hosts, err)
	}
	return mount.Attach(tree, hostsFile)
}

const cgroups = "/sys/fs/cgroup"

// prepareCommands mounts a /sys and a /proc of this node, and begins to reap what commands
// leave behind. Commands run also where these cannot be mounted, as in containers that hide
// part of /sys or /proc.
func (a *agent) prepareCommands() {
	if err := mountSys(); err != nil {
		fmt.Fprintf(os.Stderr, "/sys/class/net does not show this node's interfaces: %v\n", err)
	}
	if err := a.mountProc(); err != nil {
		fmt.Fprintf(os.Stderr, "/proc does not show this node's processes: %v\n", err)
	}
	go a.reaper.Run()
}

// mountProc mounts a /proc of this node's processes, and keeps the one before.
func (a *agent) mountProc() error {
	if _, err := a.outsideProc(); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// outsideProc returns the /proc of the supervisor's PID namespace.
func (a *agent) outsideProc() (*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outside == nil {
		var err error
		if a.outside, err = os.OpenFile("/proc", unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return nil, err
		}
	}
	return a.outside, nil
}

// mountSys mounts a sysfs that shows this node's interfaces, instead of those of the
// namespace where /sys was mounted.
func mountSys() error {
	// The new /sys hides the cgroups, by which programs learn what cpu and memory
	// they have.
	tree, err := mount.Clone(cgroups)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return mount.Attach(tree, cgroups)
}
