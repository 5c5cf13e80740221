package suite

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A File is what a suite needs to know of a topology file.
type File struct {
	Path    string
	Lab     string
	Seed    uint64 // meaningful only if HasSeed
	HasSeed bool
	// Expected is about how long a run takes, as far as the file says so. It is for sharing
	// out files, and bounds nothing.
	Expected time.Duration
}

// overhead is what a run takes beside its workloads and timeline, about.
const overhead = 500 * time.Millisecond

// FileOf is the File of a topology that was read from a path.
func FileOf(path string, t *topology.Topology) File {
	var last time.Duration
	for i := range t.Workloads {
		w := &t.Workloads[i]
		last = max(last, w.Start+w.WarmUp+w.Duration)
	}
	for i := range t.Timeline {
		e := &t.Timeline[i]
		last = max(last, e.At+time.Duration(max(e.Repeat-1, 0))*e.Every)
	}
	for i := range t.Chaos {
		last = max(last, t.Chaos[i].Until)
	}
	return File{Path: path, Lab: t.Name, Seed: t.Seed, HasSeed: t.HasSeed, Expected: overhead + last}
}

// A Shard is one of several parts of a suite, which are run on as many machines. The
// zero Shard is all of it.
type Shard struct{ Index, Of int } // Index is 1 to Of

// ParseShard reads a shard such as 2/4.
func ParseShard(text string) (Shard, error) {
	first, second, found := strings.Cut(text, "/")
	index, err := strconv.ParseUint(first, 10, 16)
	of, err2 := strconv.ParseUint(second, 10, 16)
	if !found || err != nil || err2 != nil || index < 1 || index > of {
		return Shard{}, errors.New("expected which of how many parts, from 1/4 to 4/4")
	}
	return Shard{int(index), int(of)}, nil
}

// String is the shard as ParseShard reads it.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// Pick is the files of the shard, in the order of files. It depends on the files alone,
// so that all machines agree, and each file is in one shard: the files are dealt out, the
// longest first, each to the shard with the least to do.
func (s Shard) Pick(files []File) []File {
	if s.Of == 0 {
		return files
	}
	order := slices.Clone(files)
	slices.SortStableFunc(order, func(a, b File) int {
		return cmp.Or(cmp.Compare(b.Expected, a.Expected), strings.Compare(a.Path, b.Path))
	})
	load := make([]time.Duration, s.Of)
	mine := map[string]bool{}
	for _, f := range order {
		least := 0
		for i := range load {
			if load[i] < load[least] {
				least = i
			}
		}
		load[least] += f.Expected
		if least == s.Index-1 {
			mine[f.Path] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(files), func(f File) bool { return !mine[f.Path] })
}

// Plan is the cases of files, each run that many times, pass after pass. A file's first
// pass has the seed that is given, or that of the file, or one that is drawn; those after
// it have the seeds that follow that one. seed is nil if none is given.
//
// Of cases with the same lab name, the first keeps it, and others get names with a number:
// they may run at the same time.
func Plan(files []File, passes int, seed *uint64, draw func() (uint64, error)) ([]Case, error) {
	first := make([]uint64, len(files))
	for i, f := range files {
		switch {
		case seed != nil:
			first[i] = *seed
		case f.HasSeed:
			first[i] = f.Seed
		default:
			var err error
			if first[i], err = draw(); err != nil {
				return nil, err
			}
		}
	}
	taken := map[string]bool{}
	for _, f := range files {
		taken[f.Lab] = true
	}
	given := map[string]bool{}
	var cases []Case
	for n := range max(passes, 1) {
		for i, f := range files {
			cases = append(cases, Case{
				File: f.Path, Lab: unused(f.Lab, taken, given), Seed: first[i] + uint64(n), Pass: n + 1, expected: f.Expected,
			})
		}
	}
	return cases, nil
}

// unused is a lab's name as it is, or with the first number with which it is no other's.
func unused(name string, taken, given map[string]bool) string {
	if !given[name] {
		given[name] = true
		return name
	}
	for n := 2; ; n++ {
		suffix := "-" + strconv.Itoa(n)
		numbered := name[:min(len(name), maxName-len(suffix))] + suffix
		if !taken[numbered] {
			taken[numbered] = true
			return numbered
		}
	}
}

// maxName is how long a lab's name may be, bytes.
const maxName = 63

// longestFirst orders indices of cases.
func longestFirst(order []int, cases []Case) {
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(cases[a].Pass, cases[b].Pass), cmp.Compare(cases[b].expected, cases[a].expected))
	})
}
