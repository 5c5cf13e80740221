package rdmacm

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// installed is the system's library.
func installed(t testing.TB) []byte {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/librdmacm.so.1", "/usr/lib64/librdmacm.so.1", "/usr/lib/librdmacm.so.1"} {
		if paths, _ := filepath.Glob(pattern); len(paths) > 0 {
			library, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			return library
		}
	}
	t.Skip("this machine has no librdmacm.so.1")
	return nil
}

// imports are the imported symbols by name, with their versions.
func imports(t *testing.T, library []byte) map[string]string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]string)
	for _, s := range symbols {
		versions[s.Name] = s.Version
	}
	return versions
}

func TestRename(t *testing.T) {
	library := installed(t)
	before := slices.Clone(library)
	renamed, err := Rename(library)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(library, before) {
		t.Error("the library itself has changed")
	}
	was, is := imports(t, library), imports(t, renamed)
	if len(was) != len(is) {
		t.Errorf("%d imports became %d", len(was), len(is))
	}
	changed := 0
	for i := range renamed {
		if renamed[i] != before[i] {
			changed++
		}
	}
	if changed == 0 || changed > 6*len(Imports) {
		t.Errorf("%d bytes differ", changed)
	}
	for name, version := range was {
		if k := slices.IndexFunc(Imports, func(m Import) bool { return slices.Contains(m.Names, name) }); k >= 0 {
			if v, ok := is[Imports[k].As]; !ok || v != "" {
				t.Errorf("%s is not %s without a version: %v, version %q", name, Imports[k].As, ok, v)
			}
			if _, ok := is[name]; ok {
				t.Errorf("%s is imported still", name)
			}
			continue
		}
		if v, ok := is[name]; !ok || v != version {
			t.Errorf("%s@%s became %s, %v", name, version, v, ok)
		}
	}
	again, err := Rename(renamed)
	if err != nil || !bytes.Equal(again, renamed) {
		t.Errorf("a copy cannot be copied again: %v", err)
	}
}

// ld.so says of the copy that these names are undefined, and nothing else is.
func TestRenamedLoads(t *testing.T) {
	renamed, err := Rename(installed(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "librdmacm.so.1")
	if err := os.WriteFile(path, renamed, 0o755); err != nil {
		t.Fatal(err)
	}
	ldd, err := exec.LookPath("ldd")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(ldd, "-r", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var undefined []string
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "undefined symbol: "); ok {
			name, _, _ := strings.Cut(rest, "\t")
			undefined = append(undefined, strings.Fields(name)[0])
		} else if strings.Contains(line, "not found") || strings.Contains(line, "error") {
			t.Errorf("ldd: %s", line)
		}
	}
	if len(undefined) != 5 {
		t.Errorf("undefined symbols %q of\n%s", undefined, out)
	}
	for _, name := range undefined {
		if !slices.ContainsFunc(Imports, func(m Import) bool { return m.As == name }) {
			t.Errorf("%s is undefined", name)
		}
	}
}

func TestRenameRefused(t *testing.T) {
	library := installed(t)
	replaced := func(from, to string) []byte {
		return bytes.ReplaceAll(library, []byte("\x00"+from+"\x00"), []byte("\x00"+to+"\x00"))
	}
	other := slices.Clone(library)
	other[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	short := slices.Clone(library)
	short[elf.EI_CLASS] = byte(elf.ELFCLASS32)
	for _, test := range []struct {
		name    string
		library []byte
		want    string
	}{
		{"empty", nil, "no ELF file"},
		{"text", []byte("#!/bin/sh\n"), "no ELF file"},
		{"cut", library[:len(library)/2], ""},
		{"big endian", other, ""},
		{"32 bits", short, ""},
		{"one import", replaced("fstat", "fstaz"), "it does not import fstat, expected"},
		{"two imports", bytes.ReplaceAll(replaced("fstat", "fstaz"), []byte("\x00nl_connect\x00"), []byte("\x00nl_connecs\x00")), "it does not import fstat, nl_connect, expected"},
		{"no name", replaced("rdma_resolve_addr", "rdma_resolve_adds"), "no name that ends in dma_resolve_addr, which is to stand for write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Rename(test.library); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// FuzzRename mangles a library: nothing but an error comes of it, or a copy of the same size.
func FuzzRename(f *testing.F) {
	library := installed(f)
	f.Add(uint32(0x28), uint64(0), uint32(0), uint64(0), uint32(len(library)))
	f.Add(uint32(0x1d568+3*64+0x18), uint64(1)<<63, uint32(0x3c), uint64(0xffff), uint32(len(library)))
	f.Add(uint32(0x518), ^uint64(0), uint32(0x2446), ^uint64(0), uint32(0x2500))
	f.Fuzz(func(t *testing.T, at uint32, value uint64, also uint32, other uint64, size uint32) {
		mangled := slices.Clone(library[:min(int(size), len(library))])
		for _, change := range []struct {
			at    uint32
			value uint64
		}{{at, value}, {also, other}} {
			for i := range 8 {
				if k := int(change.at) + i; k < len(mangled) {
					mangled[k] = byte(change.value >> (8 * i))
				}
			}
		}
		if renamed, err := Rename(mangled); err == nil && len(renamed) != len(mangled) {
			t.Errorf("%d bytes became %d", len(mangled), len(renamed))
		}
	})
}
