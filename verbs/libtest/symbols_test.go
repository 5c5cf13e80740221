package libtest

import (
	"bufio"
	"debug/elf"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// exported lists a library's symbols, as name@version.
func exported(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names[s.Name+"@"+s.Version] = true
		}
	}
	return names
}

// privateVersions are those of rdma-core whose providers find what they bind.
var privateVersions = []string{"34", "57", "59", "64", "65"}

// listed returns the lines of the file symbols, in the same form.
func listed(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open(filepath.Join(sources, "symbols"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) != 3 || words[0] == "#":
		case words[0] == "PRIVATE":
			for _, v := range privateVersions {
				name := words[1]
				if of, numbered := strings.CutSuffix(name, "NN"); numbered {
					name = of + v
				}
				names[name+"@IBVERBS_PRIVATE_"+v] = true
			}
		default:
			names[words[1]+"@"+words[0]] = true
		}
	}
	return names
}

// TestSymbols: what is listed is exported, with its version, and nothing else.
func TestSymbols(t *testing.T) {
	got, want := exported(t, filepath.Join(compileLibrary(t, plain), "libibverbs.so.1")), listed(t)
	if len(want) < 200 {
		t.Fatalf("%d symbols are listed", len(want))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !got[name] {
			t.Errorf("%s is listed and not exported", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !want[name] {
			t.Errorf("%s is exported and not listed", name)
		}
	}
}

// system has the paths of libibverbs on Debian and its relatives, and on other systems.
var system = []string{"/usr/lib/*-linux-gnu/libibverbs.so.1", "/usr/lib64/libibverbs.so.1"}

// TestSystemSymbols: a program or library that finds all it needs in the system's libibverbs finds it in ours.
func TestSystemSymbols(t *testing.T) {
	var theirs string
	for _, pattern := range system {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // the patterns are good ones
			theirs = found[0]
		}
	}
	if theirs == "" {
		need.Check(t, errors.New("libibverbs is not installed"))
	}
	ours := listed(t)
	for _, name := range slices.Sorted(maps.Keys(exported(t, theirs))) {
		if !ours[name] {
			t.Errorf("%s of %s is not ours", name, theirs)
		}
	}
}

// TestOldGlibc: the library needs nothing that came after glibc 2.31, that of Debian 11.
func TestOldGlibc(t *testing.T) {
	f, err := elf.Open(filepath.Join(compileLibrary(t, plain), "libibverbs.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	needed, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range needed {
		if version, ok := strings.CutPrefix(s.Version, "GLIBC_2."); ok && len(version) == 2 && version > "31" {
			t.Errorf("%s@%s", s.Name, s.Version)
		}
	}
}
