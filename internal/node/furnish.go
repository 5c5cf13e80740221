package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/mount"
	"github.com/ndklab/ndklab/topology"
)

// This file is what commands in a node find there and nowhere else: variables, and
// files, which are mounts of the node's own. They are mounted for the first command,
// so that a node that runs none does not pay for them.

var methodFurnish = control.NewProcedure[furniture]("furnish")

// furniture is what is mounted in a node.
type furniture struct {
	Hosts    string // see Config
	Files    []topology.File
	Programs *programs // for RDMA; nil without
}

// Furnish puts the node's files in place, unless that is done already. Exec does so
// before it runs a command; a caller that wants to know of errors before does it by
// itself.
func (a *Agent) Furnish(ctx context.Context) error {
	if a.furnished.Load() {
		return nil
	}
	if err := methodFurnish.Call(ctx, a.conn, furniture{a.cfg.Hosts, a.cfg.Files, a.cfg.programs()}); err != nil {
		return a.named(err)
	}
	a.furnished.Store(true)
	return nil
}

// withVariables is an environment in which variables have these values.
func withVariables(env []string, variables map[string]string) []string {
	changed := make([]string, 0, len(env)+len(variables))
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := variables[name]; !ok {
			changed = append(changed, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		changed = append(changed, name+"="+variables[name])
	}
	return changed
}

// furnish does what Furnish asks for, the first time.
func (a *agent) furnish(_ context.Context, _ *control.Request, f furniture) error {
	a.furnishing.Do(func() {
		a.prepareCommands()
		if f.Programs != nil {
			a.mountPrograms(f.Programs)
		}
		if a.unfurnished = mountFiles(f.Files); a.unfurnished != nil {
			return
		}
		own := slices.ContainsFunc(f.Files, func(file topology.File) bool { return file.Path == hostsFile })
		if f.Hosts != "" && !own {
			if err := mountHosts(f.Hosts); err != nil {
				fmt.Fprintf(os.Stderr, "the names of nodes do not resolve: %v\n", err)
			}
		}
	})
	return a.unfurnished
}

const hostsFile = "/etc/hosts"

// mountHosts has the node see the lab's hosts instead of the host's, read only: it is
// one file for all nodes.
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
