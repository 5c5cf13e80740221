// Package rdmacm makes a copy of a librdmacm.so.1 whose conversation with the kernel ends
// in ndklab's libibverbs.so.1.
//
// librdmacm opens /dev/infiniband/rdma_cm, writes commands to it and closes it, by
// functions of libc, and looks for devices by netlink. In the copy these few imports have
// other names, which libibverbs.so.1 exports, and no version. Everything else of the library
// stays, and so does its size: a new name is the end of a name that the library has anyway,
// so that only the symbols' entries change.
//
// It decides from bytes and does no I/O. Start reading at Imports and Rename.
package rdmacm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Import is a function that librdmacm imports and that ndklab's libibverbs.so.1 has in
// its place.
type Import struct {
	Call  string   // what it does, as the manual pages have it
	Names []string // the imports that are renamed; their parameters and results are the same
	As    string   // what libibverbs.so.1 exports
}

// Imports are all that are renamed. Each As is the end of the name of a function that
// librdmacm.so.1 has had since its first version, RDMACM_1.0.
//
// Programs were compiled against a glibc before 2.33 where __fxstat stands for fstat; its
// first parameter is a version of struct stat.
var Imports = []Import{
	{"open", []string{"open", "open64"}, "dma_create_event_channel"},
	{"close", []string{"close"}, "dma_destroy_event_channel"},
	{"write", []string{"write"}, "dma_resolve_addr"},
	{"fstat", []string{"fstat", "fstat64"}, "dma_get_src_port"},
	{"fstat", []string{"__fxstat", "__fxstat64"}, "dma_get_dst_port"},
	{"nl_connect", []string{"nl_connect"}, "dma_resolve_route"},
}

// Sizes and offsets of the ELF-64 object file format.
const (
	symbolSize  = elf.Sym64Size
	symbolName  = 0 // st_name
	symbolIndex = 6 // st_shndx
	versionSize = 2
	unversioned = 1 // VER_NDX_GLOBAL
)

// Rename returns a copy of a librdmacm.so.1 with Imports renamed. A library whose imports have
// these names already is returned as it is.
func Rename(library []byte) ([]byte, error) {
	renamed := slices.Clone(library)
	t, err := readTables(renamed)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool) // by Call
	for i := range len(t.symbols) / symbolSize {
		symbol := t.symbols[i*symbolSize:][:symbolSize]
		if binary.LittleEndian.Uint16(symbol[symbolIndex:]) != uint16(elf.SHN_UNDEF) {
			continue
		}
		name := t.name(binary.LittleEndian.Uint32(symbol[symbolName:]))
		k := slices.IndexFunc(Imports, func(m Import) bool { return m.As == name || slices.Contains(m.Names, name) })
		if k < 0 {
			continue
		}
		at := bytes.Index(t.names, []byte(Imports[k].As+"\x00"))
		if at < 0 {
			return nil, fmt.Errorf("it has no name that ends in %s, which is to stand for %s", Imports[k].As, name)
		}
		binary.LittleEndian.PutUint32(symbol[symbolName:], uint32(at))
		binary.LittleEndian.PutUint16(t.versions[i*versionSize:], unversioned)
		found[Imports[k].Call] = true
	}
	var missing []string
	for _, m := range Imports {
		if !found[m.Call] && !slices.Contains(missing, m.Call) {
			missing = append(missing, m.Call)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("it does not import %s, expected a librdmacm.so.1 of rdma-core 33 or later", strings.Join(missing, ", "))
	}
	return renamed, nil
}

// tables are parts of a library, which they alias.
type tables struct {
	symbols  []byte // .dynsym
	versions []byte // .gnu.version: as many as symbols
	names    []byte // .dynstr
}

func readTables(library []byte) (*tables, error) {
	f, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return nil, fmt.Errorf("it is no ELF file: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Type != elf.ET_DYN {
		return nil, fmt.Errorf("it is %v %v %v, expected a shared object of 64 bits, little endian", f.Class, f.Data, f.Type)
	}
	symbols := f.SectionByType(elf.SHT_DYNSYM)
	versions := f.SectionByType(elf.SHT_GNU_VERSYM)
	if symbols == nil || versions == nil || int64(symbols.Link) >= int64(len(f.Sections)) {
		return nil, errors.New("it has no table of dynamic symbols with versions and names")
	}
	var t tables
	for _, part := range []struct {
		of   *elf.Section
		into *[]byte
	}{{symbols, &t.symbols}, {versions, &t.versions}, {f.Sections[symbols.Link], &t.names}} {
		s := part.of
		if s.Type == elf.SHT_NOBITS || s.Offset > uint64(len(library)) || s.FileSize > uint64(len(library))-s.Offset {
			return nil, fmt.Errorf("its section %s is not within the file", s.Name)
		}
		*part.into = library[s.Offset:][:s.FileSize]
	}
	if len(t.versions)/versionSize < len(t.symbols)/symbolSize {
		return nil, errors.New("it has fewer versions than dynamic symbols")
	}
	return &t, nil
}

// name returns the string at an offset, "" outside of the table.
func (t *tables) name(offset uint32) string {
	if uint64(offset) >= uint64(len(t.names)) {
		return ""
	}
	name, _, _ := bytes.Cut(t.names[offset:], []byte{0})
	return string(name)
}
