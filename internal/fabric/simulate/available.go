package simulate

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Available returns the memory that this process can still get, in bytes: of the machine,
// and of its cgroup and those above. It is 0 where that is not known.
func Available() uint64 {
	least := fieldOf("/proc/meminfo", "MemAvailable:") << 10
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(own)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) < 3 {
			continue
		}
		switch {
		case part[0] == "0" && part[1] == "":
			least = leastOfGroups(least, "/sys/fs/cgroup", part[2], "memory.max", "memory.current", "inactive_file")
		case slices.Contains(strings.Split(part[1], ","), "memory"):
			least = leastOfGroups(least, "/sys/fs/cgroup/memory", part[2], "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
		}
	}
	return least
}

// leastOfGroups returns least or, if that is less, what a cgroup or one above it leaves. Files
// that the kernel would drop do not count as used.
func leastOfGroups(least uint64, root, group, limit, usage, dropped string) uint64 {
	for ; ; group = path.Dir(group) {
		at := path.Join(root, group)
		if most := numberIn(path.Join(at, limit)); most > 0 {
			used := numberIn(path.Join(at, usage))
			used -= min(used, fieldOf(path.Join(at, "memory.stat"), dropped))
			if left := most - min(most, used); least == 0 || left < least {
				least = max(1, left)
			}
		}
		if group == "/" || group == "." || group == "" {
			return least
		}
	}
}

// numberIn reads the number in a file; 0 if there is none, as where it says "max".
func numberIn(name string) uint64 {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// fieldOf returns the number behind a name at the beginning of a file's line; 0 if there is none.
func fieldOf(name, key string) uint64 {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
