package libtest

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// header is that of programs, in whose place the library has abi.h.
const header = "/usr/include/infiniband/verbs.h"

// layoutOf describes what a header declares: structures and unions with their sizes, their members with offsets and sizes,
// enumerations with their values, each as "name" and what it is.
func layoutOf(t *testing.T, include string, flags ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.so")
	if err := os.WriteFile(source, []byte("#include "+include+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", append(flags, "-std=gnu11", "-D_GNU_SOURCE", "-g", "-fno-eliminate-unused-debug-types", "-shared", "-fPIC", "-o", library, source)...)
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	layout := map[string]string{}
	for reader := data.Reader(); ; {
		entry, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		if entry == nil {
			return layout
		}
		switch entry.Tag {
		case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType:
			kind, err := data.Type(entry.Offset)
			if err != nil {
				t.Fatal(err)
			}
			describe(layout, kind)
		}
	}
}

func describe(layout map[string]string, kind dwarf.Type) {
	switch kind := kind.(type) {
	case *dwarf.StructType:
		if kind.StructName != "" && !kind.Incomplete {
			layout[kind.StructName] = fmt.Sprintf("%d bytes", kind.ByteSize)
			members(layout, kind.StructName, kind, 0)
		}
	case *dwarf.EnumType:
		for _, v := range kind.Val {
			layout[v.Name] = fmt.Sprint(v.Val)
		}
	}
}

// members describes those of a structure that lies at an offset, those of nameless ones as its own.
func members(layout map[string]string, name string, of *dwarf.StructType, at int64) {
	for _, f := range of.Field {
		inner := f.Type
		for {
			alias, ok := inner.(*dwarf.TypedefType)
			if !ok {
				break
			}
			inner = alias.Type
		}
		nested, ok := inner.(*dwarf.StructType)
		if f.Name != "" {
			layout[name+"."+f.Name] = fmt.Sprintf("%d bytes at %d", f.Type.Size(), at+f.ByteOffset)
		}
		switch {
		case ok && f.Name == "":
			members(layout, name, nested, at+f.ByteOffset)
		case ok && nested.StructName == "":
			members(layout, name+"."+f.Name, nested, at+f.ByteOffset)
		}
	}
}

// TestLayout: what abi.h declares is as programs have it that were compiled with the system's header. Structures that have
// grown with the releases of rdma-core, at their ends, are compared as far as both go.
func TestLayout(t *testing.T) {
	needCompiler(t)
	if out, err := exec.Command("gcc", "-E", "-include", "infiniband/verbs.h", "-x", "c", os.DevNull).CombinedOutput(); err != nil {
		need.Check(t, fmt.Errorf("the headers of libibverbs cannot be used: %w: %s", err, out))
	}
	ours, theirs := layoutOf(t, `"abi.h"`, "-I"+sources), layoutOf(t, "<infiniband/verbs.h>")
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		outer, _, member := strings.Cut(name, ".")
		_, known := ours[name]
		switch {
		case !strings.HasPrefix(strings.ToLower(outer), "ib"), !known && !member, member && ours[outer] == "":
		case strings.HasSuffix(theirs[name], " bytes") && grown[name]:
		case ours[name] != theirs[name]:
			t.Errorf("%s: abi.h has %q, %s %q", name, ours[name], header, theirs[name])
		default:
			compared++
		}
	}
	if compared < 500 {
		t.Errorf("%d declarations compared", compared)
	}
}

// grown are structures of which later releases have more members than some that are installed.
var grown = map[string]bool{"ibv_qp_ex": true, "verbs_context": true, "ibv_device_attr_ex": true}
