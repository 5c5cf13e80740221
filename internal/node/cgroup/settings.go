package cgroup

import (
	"strconv"
	"time"
)

// A setting is a value to write into a file of a group.
type setting struct {
	file, value string
	optional    bool // not every kernel has the file
}

// settings returns what to write for the limit of a controller.
func (h hierarchy) settings(controller string, l Limits) []setting {
	switch controller {
	case cpuController:
		return h.cpuLimit(l.CPU)
	case memoryController:
		return h.memoryLimit(l.Memory)
	case pidsController:
		return []setting{{"pids.max", strconv.FormatUint(l.PIDs, 10), false}}
	}
	return nil
}

// cpuPeriod is the period in which a node gets its share of the cpu. The kernel's
// default, 100 ms, would stall a transport for longer than its timeouts.
const cpuPeriod = 10 * time.Millisecond

// minQuota is the least that the kernel grants per period (kernel/sched/core.c,
// min_cfs_quota_period); smaller shares get a longer period.
const minQuota = time.Millisecond

func (h hierarchy) cpuLimit(cores float64) []setting {
	period := max(cpuPeriod, time.Duration(float64(minQuota)/cores))
	quota := max(minQuota, time.Duration(cores*float64(period)))
	p, q := strconv.FormatInt(period.Microseconds(), 10), strconv.FormatInt(quota.Microseconds(), 10)
	if h.v2 {
		return []setting{{"cpu.max", q + " " + p, false}}
	}
	return []setting{{"cpu.cfs_period_us", p, false}, {"cpu.cfs_quota_us", q, false}}
}

func (h hierarchy) memoryLimit(bytes uint64) []setting {
	b := strconv.FormatUint(bytes, 10)
	// Swap is to add nothing. The files for it exist where the kernel counts it.
	if h.v2 {
		// With oom.group all processes of the group die, not the largest alone.
		return []setting{{"memory.max", b, false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}}
	}
	return []setting{{"memory.limit_in_bytes", b, false}, {"memory.memsw.limit_in_bytes", b, true}}
}
