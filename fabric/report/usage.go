package report

// Limits are those in force of what a node may use; null is no limit.
type Limits struct {
	CPU    *float64 `json:"cpu"`    // cores
	Memory *uint64  `json:"memory"` // bytes, swap included
	PIDs   *uint64  `json:"pids"`   // processes and threads at once
}

// A Usage is what the processes of a node have used since it started, those that have
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

// usage writes what nodes with limits have used, next to these.
func (p *page) usage(nodes []Node) {
	t := table{columns: []column{
		{title: "node", wraps: true},
		{title: "cpu\nused", right: true}, {title: "throttled", right: true}, {title: "limit", right: true},
		{title: "memory\nnow", right: true}, {title: "peak", right: true}, {title: "limit", right: true},
		{title: "pids\nnow", right: true}, {title: "refused", right: true}, {title: "limit", right: true},
	}}
	for i := range nodes {
		n := &nodes[i]
		if n.Usage == nil || n.Limits == nil {
			continue
		}
		u, l := n.Usage, n.Limits
		t.add(n.Name, cell(u.CPUSeconds, seconds), cell(u.ThrottledSeconds, seconds), cell(l.CPU, significant),
			cell(u.Memory, Size), cell(u.MemoryPeak, Size), cell(l.Memory, Size),
			cell(u.PIDs, count), cell(u.PIDsRefused, count), cell(l.PIDs, count))
	}
	if len(t.rows) > 0 {
		p.table(&t)
	}
}

func seconds(s float64) string { return Duration(s * 1e6) }

// cell is a value for people; "-" is none.
func cell[T any](value *T, format func(T) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}
