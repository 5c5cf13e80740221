package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/control"
)

func TestParse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# a rack\nnode1\n\n  user@node2 # the second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Spec{
		"local:2":                  {Kind: Local, Count: 2},
		"slurm":                    {Kind: Slurm},
		"kubernetes":               {Kind: Kubernetes},
		"step":                     {Kind: Task},
		"slurm:-N 8 -p rdma":       {Kind: Allocate, Flags: []string{"-N", "8", "-p", "rdma"}},
		"slurm:-t 1:00:00 -N 2":    {Kind: Allocate, Flags: []string{"-t", "1:00:00", "-N", "2"}},
		"a,b.example.org, user@c ": {Kind: SSH, Names: []string{"a", "b.example.org", "user@c"}},
		"a":                        {Kind: SSH, Names: []string{"a"}},
		"@" + file:                 {Kind: SSH, Names: []string{"node1", "user@node2"}},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		again, err := Parse(got.String())
		if diff := cmp.Diff(want, again); diff != "" || err != nil {
			t.Errorf("%q is %q: %v %s", text, got, err, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		f, err := os.CreateTemp(dir, "hosts")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	empty, bad, twice, control7 := write("# none\n"), write("a\n\n-b\n"), write("a\na\n"), write("a\nb\x07\n")
	for text, want := range map[string]string{
		"":             "no hosts, expected local:N, slurm, slurm:FLAGS of srun, step",
		"local":        `"" is no number of workers, expected local:N with N from 1 to 1024`,
		"local:0":      `"0" is no number of workers`,
		"local:x":      `"x" is no number of workers`,
		"local:1025":   `"1025" is no number of workers`,
		"slurm:":       `"" are no flags of srun, expected such as 'slurm:-N 8 -p rdma'`,
		"slurm:rdma":   `"rdma" are no flags of srun`,
		"a,b\x1b":      "a control character, expected local:N",
		"@" + control7: control7 + `:2: "b\a" is no name of a host`,
		"step:2":       `"step" is no launcher`,
		"k8s:2":        `"k8s" is no launcher, expected local:N`,
		"a,,b":         `"" is no name of a host, expected one that ssh takes`,
		"a,-oProxy":    `"-oProxy" is no name of a host`,
		"a,b,a":        `"a" is there two times, expected each host once`,
		"@/no/such":    "open /no/such: no such file",
		"@" + empty:    empty + ": 0 hosts, expected from 1 to 1024",
		"@" + bad:      bad + `:3: "-b" is no name of a host`,
		"@" + twice:    `"a" is there two times`,
		"host name":    `"host name" is no name of a host`,
		"a,b/../etc/c": `"b/../etc/c" is no name of a host`,
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--hosts") || control.CodeOf(err) != control.Usage {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
