package lab

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file compares what a lab will need of things that the system counts with how
// many it allows, so that a large lab fails beforehand with what to raise, and not half
// made with whatever the kernel says then.

// capacity has the number of each that the system allows this user; math.MaxUint64 where it
// does not say.
type capacity struct {
	files      uint64 // that one process has open. Go has raised it as far as it may
	threads    uint64 // of the whole system
	ownThreads uint64 // of this user; root has no such limit
	running    uint64 // threads there are already
	// namespaces of each kind, by the kernel's name of the limit
	namespaces map[string]uint64
}

// The needs of a lab. A supervisor has a channel, a pipe and a process for every node, and
// a socket while it starts, and a socket for each address of a node without a process, or one file for its network; the engine has two sockets for each link that it carries and
// another two while the link changes hands; an agent has four or five threads.
const (
	filesPerNode   = 4
	filesPerLink   = 4
	filesBeside    = 100
	threadsPerNode = 6
)

// namespaceLimits are the kinds of namespaces that every node has (user_namespaces(7)).
var namespaceLimits = []string{"user.max_net_namespaces", "user.max_uts_namespaces", "user.max_mnt_namespaces", "user.max_pid_namespaces"}

// systemCapacity reads what this system allows. In the user namespace of an ordinary
// user's lab it would say something else.
func systemCapacity() capacity {
	c := capacity{files: math.MaxUint64, ownThreads: math.MaxUint64, namespaces: map[string]uint64{}}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		c.files = limit.Cur
	}
	if !privileged() && unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil {
		c.ownThreads = limit.Cur
	}
	c.threads = min(sysctl("kernel.pid_max"), sysctl("kernel.threads-max"))
	for _, name := range namespaceLimits {
		c.namespaces[name] = sysctl(name)
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		// "0.20 0.18 0.12 1/80 11206": the fourth has the threads behind the slash (proc_loadavg(5)).
		if fields := strings.Fields(string(text)); len(fields) > 3 {
			_, all, _ := strings.Cut(fields[3], "/")
			c.running, _ = strconv.ParseUint(all, 10, 64) // the kernel wrote it
		}
	}
	return c
}

// sysctl is a limit of the kernel's; math.MaxUint64 if it has none of that name.
func sysctl(name string) uint64 {
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

// check says what there is too little of for a lab.
func (c *capacity) check(topo *topology.Topology) error {
	nodes, agents, carried, waiting := uint64(0), uint64(0), uint64(0), uint64(0)
	for _, spec := range withProcesses(topo) {
		nodes++
		if !mayBeIdle(topo, spec) {
			agents++
			continue
		}
		addresses := uint64(0)
		for _, face := range spec.Interfaces {
			addresses += uint64(len(face.Addresses))
		}
		waiting += max(1, addresses)
	}
	for i := range topo.Links {
		if l := &topo.Links[i]; l.Engine != topology.Netem && !(l.Directions[0].None() && l.Directions[1].None()) {
			carried++
		}
	}
	var short []string
	hold := func(need uint64, what string, allowed uint64, remedy string) {
		if need > allowed {
			short = append(short, fmt.Sprintf("%d %s, of which %d are allowed: %s", need, what, allowed, remedy))
		}
	}
	hold(filesBeside+max(filesPerNode*agents+waiting, filesPerLink*carried), "open files in one process", c.files, "raise the hard limit of open files (ulimit -Hn, LimitNOFILE= of a service)")
	threads := threadsPerNode * agents
	hold(threads+c.running, "threads with those there are", c.threads, "raise kernel.pid_max and kernel.threads-max")
	hold(threads, "threads of its user", c.ownThreads, "raise the user's limit of processes (ulimit -u)")
	for _, name := range namespaceLimits {
		hold(nodes+1, "namespaces of a kind", c.namespaces[name], "raise "+name)
	}
	if short == nil {
		return nil
	}
	return control.Errorf(control.Unable, "lab %s, nodes: %d, would need %s", topo.Name, nodes, strings.Join(short, "; and "))
}
