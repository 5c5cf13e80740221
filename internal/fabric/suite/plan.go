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

// A File holds what a suite needs to know of a topology file.
type File struct {
	Path    string
	Lab     string
	Seed    uint64 // meaningful only if HasSeed
	HasSeed bool
	// Expected is about how long a run takes, as far as the file says so. It is for sharing
	// out files, and bounds nothing.
	Expected time.Duration
}

// overhead is the time that a run takes beside its workloads and timeline, about.
const overhead = 500 * time.Millisecond

// FileOf returns the File of a topology that was read from a path.
func FileOf(path string, t *topology.Topology) File {
	length, _ := Length(t)
	return File{Path: path, Lab: t.Name, Seed: t.Seed, HasSeed: t.HasSeed, Expected: overhead + length}
}

// Length returns how long the workloads and the timeline of a topology go on at least, as far as the
// file says so. Bounded reports whether it says so of every workload: one that counts messages may
// take longer.
func Length(t *topology.Topology) (length time.Duration, bounded bool) {
	bounded = true
	for i := range t.Workloads {
		w := &t.Workloads[i]
		length = max(length, w.Start+w.WarmUp+w.Duration)
		bounded = bounded && w.Duration > 0
	}
	for i := range t.Timeline {
		e := &t.Timeline[i]
		length = max(length, e.At+time.Duration(max(e.Repeat-1, 0))*e.Every)
	}
	for i := range t.Chaos {
		length = max(length, t.Chaos[i].Until)
	}
	return length, bounded
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

// String returns the shard as ParseShard reads it.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// Pick returns the files of the shard, in the order of files. It depends on the files alone,
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

// Plan returns the cases of files, each run that many times, pass after pass. A file's first
// pass has the seed that is given, or that of the file, or one that is drawn; those after
// it have the seeds that follow that one. seed is nil if none is given.
//
// Of files with the same lab name, the first keeps it, and others get names with a number.
// So do later passes of a file if cases run side by side.
func Plan(files []File, passes int, aside bool, seed *uint64, draw func() (uint64, error)) ([]Case, error) {
	taken := map[string]bool{}
	for _, f := range files {
		taken[f.Lab] = true
	}
	first := make([]Case, len(files))
	given := map[string]bool{}
	for i, f := range files {
		c := Case{File: f.Path, Lab: f.Lab, Seed: f.Seed, Pass: 1, expected: f.Expected}
		switch {
		case seed != nil:
			c.Seed = *seed
		case !f.HasSeed:
			var err error
			if c.Seed, err = draw(); err != nil {
				return nil, err
			}
		}
		if given[c.Lab] {
			c.Lab = numbered(c.Lab, 2, taken)
		}
		given[c.Lab] = true
		first[i] = c
	}
	cases := first
	for pass := 2; pass <= passes; pass++ {
		for _, c := range first {
			c.Pass = pass
			c.Seed += uint64(pass - 1)
			if aside {
				c.Lab = numbered(c.Lab, pass, taken)
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// numbered returns a lab's name with the first number from n on with which it is not taken, and
// now is.
func numbered(name string, n int, taken map[string]bool) string {
	for ; ; n++ {
		suffix := "-" + strconv.Itoa(n)
		other := name[:min(len(name), topology.MaxLabName-len(suffix))] + suffix
		if !taken[other] {
			taken[other] = true
			return other
		}
	}
}

// longestFirst orders indices of cases.
func longestFirst(order []int, cases []Case) {
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(cases[a].Pass, cases[b].Pass), cmp.Compare(cases[b].expected, cases[a].expected))
	})
}
