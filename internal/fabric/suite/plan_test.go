package suite

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// noSeed is for plans that need none drawn.
func noSeed() (uint64, error) { return 0, errors.New("a seed was drawn") }

func TestPlan(t *testing.T) {
	given := uint64(100)
	files := []File{
		{Path: "a", Lab: "pair", Seed: 7, HasSeed: true},
		{Path: "b", Lab: "pair", Seed: 7, HasSeed: true},
		{Path: "c", Lab: "pair-2", Seed: 9, HasSeed: true},
	}
	tests := []struct {
		name   string
		passes int
		aside  bool
		seed   *uint64
		want   []Case
	}{
		{"once", 1, false, nil, []Case{
			{File: "a", Lab: "pair", Seed: 7, Pass: 1},
			{File: "b", Lab: "pair-3", Seed: 7, Pass: 1},
			{File: "c", Lab: "pair-2", Seed: 9, Pass: 1},
		}},
		{"twice", 2, false, &given, []Case{
			{File: "a", Lab: "pair", Seed: 100, Pass: 1},
			{File: "b", Lab: "pair-3", Seed: 100, Pass: 1},
			{File: "c", Lab: "pair-2", Seed: 100, Pass: 1},
			{File: "a", Lab: "pair", Seed: 101, Pass: 2},
			{File: "b", Lab: "pair-3", Seed: 101, Pass: 2},
			{File: "c", Lab: "pair-2", Seed: 101, Pass: 2},
		}},
		{"twice at once", 2, true, nil, []Case{
			{File: "a", Lab: "pair", Seed: 7, Pass: 1},
			{File: "b", Lab: "pair-3", Seed: 7, Pass: 1},
			{File: "c", Lab: "pair-2", Seed: 9, Pass: 1},
			{File: "a", Lab: "pair-4", Seed: 8, Pass: 2},
			{File: "b", Lab: "pair-3-2", Seed: 8, Pass: 2},
			{File: "c", Lab: "pair-2-2", Seed: 10, Pass: 2},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Plan(files, test.passes, test.aside, test.seed, noSeed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Case{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A file without a seed gets one that is drawn, once for all of its passes.
func TestPlanDraws(t *testing.T) {
	cases, err := Plan([]File{{Path: "a", Lab: "a"}}, 2, false, nil, func() (uint64, error) { return 41, nil })
	if err != nil {
		t.Fatal(err)
	}
	if cases[0].Seed != 41 || cases[1].Seed != 42 {
		t.Errorf("seeds are %d and %d, want 41 and 42", cases[0].Seed, cases[1].Seed)
	}
	if _, err := Plan([]File{{Path: "a", Lab: "a"}}, 1, false, nil, noSeed); err == nil {
		t.Error("a seed that cannot be drawn is no error")
	}
}

// The name of a case is one that a lab can have, however long the file's is.
func TestPlanLongNames(t *testing.T) {
	long := strings.Repeat("x", topology.MaxLabName)
	cases, err := Plan([]File{{Path: "a", Lab: long}, {Path: "b", Lab: long}}, 1, false, new(uint64), noSeed)
	if err != nil {
		t.Fatal(err)
	}
	if err := topology.CheckName(cases[1].Lab); err != nil || cases[1].Lab == long {
		t.Errorf("the second lab is %s: %v", cases[1].Lab, err)
	}
}

// Cases that may run at once have names of their own.
func TestPlanNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a-2", "a-3", "a-2-2", "b"}), 1, 12).Draw(t, "names")
		var files []File
		for i, name := range names {
			files = append(files, File{Path: string(rune('a' + i)), Lab: name, HasSeed: true})
		}
		cases, err := Plan(files, rapid.IntRange(1, 4).Draw(t, "passes"), true, nil, noSeed)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, c := range cases {
			if seen[c.Lab] {
				t.Fatalf("two labs are %s: %v", c.Lab, cases)
			}
			seen[c.Lab] = true
		}
	})
}

// Each file is in one shard, in which the order of files stays, and no shard has longer to
// do than another by more than a file.
func TestShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var files []File
		longest := time.Duration(0)
		for i, seconds := range rapid.SliceOfN(rapid.IntRange(1, 60), 0, 40).Draw(t, "seconds") {
			f := File{Path: string(rune('A' + i)), Expected: time.Duration(seconds) * time.Second}
			files = append(files, f)
			longest = max(longest, f.Expected)
		}
		of := rapid.IntRange(1, 6).Draw(t, "of")
		var all []string
		var loads []time.Duration
		for i := range of {
			load := time.Duration(0)
			mine := Shard{i + 1, of}.Pick(files)
			if !slices.IsSortedFunc(mine, func(a, b File) int { return strings.Compare(a.Path, b.Path) }) {
				t.Fatalf("shard %d is out of order: %v", i+1, mine)
			}
			for _, f := range mine {
				all = append(all, f.Path)
				load += f.Expected
			}
			loads = append(loads, load)
		}
		slices.Sort(all)
		if len(all) != len(files) || len(slices.Compact(all)) != len(files) {
			t.Fatalf("shards have %v of %d files", all, len(files))
		}
		if slices.Max(loads)-slices.Min(loads) > longest {
			t.Fatalf("shards take %v", loads)
		}
	})
}

func TestParseShard(t *testing.T) {
	if s, err := ParseShard("2/4"); err != nil || s != (Shard{2, 4}) || s.String() != "2/4" {
		t.Errorf("2/4 is %v, %v", s, err)
	}
	for _, text := range []string{"", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2"} {
		if s, err := ParseShard(text); err == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
}

func TestFileOf(t *testing.T) {
	for name, tt := range map[string]struct {
		topo topology.Topology
		want time.Duration
	}{
		"nothing": {topology.Topology{}, 0},
		"a workload": {topology.Topology{Workloads: []topology.Workload{
			{Start: time.Second, WarmUp: 2 * time.Second, Duration: 4 * time.Second}, {Duration: 5 * time.Second},
		}}, 7 * time.Second},
		"the timeline": {topology.Topology{
			Workloads: []topology.Workload{{Duration: 2 * time.Second}},
			Timeline:  []topology.Event{{At: time.Second, Repeat: 5, Every: 2 * time.Second}, {At: 3 * time.Second}},
		}, 9 * time.Second},
		"chaos": {topology.Topology{
			Workloads: []topology.Workload{{Duration: 2 * time.Second}}, Chaos: []topology.Chaos{{Until: 3 * time.Second}},
		}, 3 * time.Second},
	} {
		tt.topo.Name = "x"
		if f := FileOf("x.yaml", &tt.topo); f.Expected != tt.want+overhead || f.Lab != "x" || f.Path != "x.yaml" {
			t.Errorf("%s: %+v, expected to take %v", name, f, tt.want+overhead)
		}
	}
}

// The longest cases of a pass come first, and no case before one of an earlier pass.
func TestLongestFirst(t *testing.T) {
	cases := []Case{{Pass: 2, expected: 9}, {Pass: 1, expected: 1}, {Pass: 1, expected: 3}, {Pass: 2, expected: 4}, {Pass: 1, expected: 3}}
	order := []int{0, 1, 2, 3, 4}
	longestFirst(order, cases)
	if diff := cmp.Diff([]int{2, 4, 1, 0, 3}, order); diff != "" {
		t.Error(diff)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.ndklab.yaml", "a.ndklab.yaml", "other.yaml", "sub/c.ndklab.yaml", ".hidden/d.ndklab.yaml", "empty/x"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(dir, "empty", "all")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	tests := []struct {
		paths []string
		want  []string
	}{
		{[]string{"."}, []string{"a.ndklab.yaml", "b.ndklab.yaml", "sub/c.ndklab.yaml"}},
		{[]string{"sub/"}, []string{"sub/c.ndklab.yaml"}},
		{[]string{"other.yaml", "sub"}, []string{"other.yaml", "sub/c.ndklab.yaml"}},
		{[]string{"b.ndklab.yaml", "."}, []string{"b.ndklab.yaml", "a.ndklab.yaml", "sub/c.ndklab.yaml"}},
		{[]string{"empty/all"}, []string{"empty/all/a.ndklab.yaml", "empty/all/b.ndklab.yaml", "empty/all/sub/c.ndklab.yaml"}},
	}
	for _, test := range tests {
		got, _, err := Find(test.paths)
		if err != nil {
			t.Errorf("%v: %v", test.paths, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v: %s", test.paths, diff)
		}
	}
	for _, path := range []string{"empty", "nowhere"} {
		if got, _, err := Find([]string{path}); err == nil {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// A file that is found twice is told of, by whatever paths.
func TestFindAgain(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("a.ndklab.yaml", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.ndklab.yaml", "b.ndklab.yaml"); err != nil {
		t.Fatal(err)
	}
	files, again, err := Find([]string{"a.ndklab.yaml", "./a.ndklab.yaml", filepath.Join(dir, "a.ndklab.yaml"), "b.ndklab.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Again{{"a.ndklab.yaml", "a.ndklab.yaml"}, {filepath.Join(dir, "a.ndklab.yaml"), "a.ndklab.yaml"}, {"b.ndklab.yaml", "a.ndklab.yaml"}}
	if diff := cmp.Diff(want, again); diff != "" || len(files) != 1 {
		t.Fatalf("%v, again (-want +got):\n%s", files, diff)
	}
	for i, want := range []string{"a.ndklab.yaml is named more than once: it runs once", dir + "/a.ndklab.yaml is the file a.ndklab.yaml: it runs once"} {
		if got := again[i].String(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
