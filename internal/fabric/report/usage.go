package report

// Limits are those in force of what a node may use; null is no limit.
type Limits struct {
	CPU    *float64 `json:"cpu"`    // cores
	Memory *uint64  `json:"memory"` // bytes, swap included
	PIDs   *uint64  `json:"pids"`   // processes and threads at once
}

// A Usage holds what the processes of a node have used since it started, those that have
// ended included; null is not known on this kernel.
type Usage struct {
	CPUSeconds       *float64 `json:"cpu_seconds"`
	ThrottledSeconds *float64 `json:"throttled_seconds"` // that they waited because of the limit, summed over processors
	Memory           *uint64  `json:"memory"`            // bytes now, with the page cache of files that they read or wrote
	MemoryPeak       *uint64  `json:"memory_peak"`       // bytes
	OOMKills         *uint64  `json:"oom_kills"`         // processes killed because the memory was over its limit
	PIDs             *uint64  `json:"pids"`              // processes and threads now
	PIDsRefused      *uint64  `json:"pids_refused"`      // that could not be started because of the limit
}

// since returns what was used since before. The highest memory is known if it was higher
// than any until then.
func (u *Usage) since(before *Usage) *Usage {
	if u == nil || before == nil {
		return u
	}
	used := *u
	used.CPUSeconds, used.ThrottledSeconds = less(u.CPUSeconds, before.CPUSeconds), less(u.ThrottledSeconds, before.ThrottledSeconds)
	used.OOMKills, used.PIDsRefused = less(u.OOMKills, before.OOMKills), less(u.PIDsRefused, before.PIDsRefused)
	if u.MemoryPeak != nil && before.MemoryPeak != nil && *u.MemoryPeak <= *before.MemoryPeak {
		used.MemoryPeak = nil
	}
	return &used
}

// less returns what was counted since before; nil if either is not known.
func less[T uint64 | float64](now, before *T) *T {
	if now == nil || before == nil {
		return nil
	}
	rest := *now - min(*now, *before)
	return &rest
}
