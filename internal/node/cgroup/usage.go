package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Usage has the resources that a node has used since its group was made. Those that the
// kernel does not count, or is too old to report, are nil.
type Usage struct {
	CPU         *time.Duration // of all its processes, also those that have ended
	Throttled   *time.Duration // that processes had to wait because of the limit
	Memory      *uint64        // bytes now, with the page cache of files that its processes have read or written
	MemoryPeak  *uint64        // bytes
	OOMKills    *uint64        // processes killed because the memory was over its limit
	PIDs        *uint64        // processes and threads now
	PIDsRefused *uint64        // that could not be started because of the limit
}

// Usage reads what the group has used. It is there for as long as the group, also
// when all its processes are dead.
func (g *Group) Usage() Usage {
	u := Usage{
		PIDs:        g.value(pidsController, "pids.current", ""),
		PIDsRefused: g.value(pidsController, "pids.events", "max"),
		OOMKills:    g.oomKills(),
	}
	if g.at[cpuController].v2 {
		u.CPU = span(g.value(cpuController, "cpu.stat", "usage_usec"), time.Microsecond)
		u.Throttled = span(g.value(cpuController, "cpu.stat", "throttled_usec"), time.Microsecond)
	} else {
		u.CPU = span(g.value(cpuacctController, "cpuacct.usage", ""), time.Nanosecond)
		u.Throttled = span(g.value(cpuController, "cpu.stat", "throttled_time"), time.Nanosecond)
	}
	if g.at[memoryController].v2 {
		u.Memory = g.value(memoryController, "memory.current", "")
		u.MemoryPeak = g.value(memoryController, "memory.peak", "") // since Linux 5.19
	} else {
		u.Memory = g.value(memoryController, "memory.usage_in_bytes", "")
		u.MemoryPeak = g.value(memoryController, "memory.max_usage_in_bytes", "")
	}
	return u
}

// OverMemory reports whether processes of the node were killed because it was over its
// memory limit.
func (g *Group) OverMemory() bool {
	if g.overMemory.Load() {
		return true
	}
	kills := g.oomKills()
	return kills != nil && *kills > 0
}

func (g *Group) oomKills() *uint64 {
	if g.at[memoryController].v2 {
		return g.value(memoryController, "memory.events", "oom_kill")
	}
	return g.value(memoryController, "memory.oom_control", "oom_kill")
}

// value reads a count of the group from the file of a controller: the only one there,
// or that of a name.
func (g *Group) value(controller, file, name string) *uint64 {
	h, ok := g.at[controller]
	if !ok {
		return nil
	}
	n, err := count(filepath.Join(h.root, g.path, file), name)
	if err != nil {
		return nil
	}
	return &n
}

func span(n *uint64, unit time.Duration) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(*n) * unit
	return &d
}

// count reads a value from a file that has nothing else, or, of a name, from one of
// lines with a name and a value each.
func count(file, name string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	if name == "" {
		return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", file, name)
}
