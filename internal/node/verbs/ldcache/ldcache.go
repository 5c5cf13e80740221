// Package ldcache reads and extends /etc/ld.so.cache, in which glibc's dynamic linker looks
// libraries up (ld.so(8), ldconfig(8)).
//
// The format is that of glibc 2.2 and later, "glibc-ld.so.cache1.1" (sysdeps/generic/
// dl-cache.h), little endian, also behind the older one that ldconfig wrote in front of it
// until glibc 2.32. It does no I/O. Start reading at Parse.
package ldcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	magic      = "glibc-ld.so.cache1.1"
	headerSize = 48 // struct cache_file_new
	entrySize  = 24 // struct file_entry_new

	countAt     = 20 // nlibs
	stringsAt   = 24 // len_strings
	flagsAt     = 28 // flags: the endianness in the lowest two bits
	extensionAt = 32 // extension_offset, from the file's beginning; 0 is none

	endianMask, bigEndian = 3, 3

	extensionMagic = 0xeaa42174
	extensionHead  = 8  // struct cache_extension: magic, count
	sectionSize    = 16 // struct cache_extension_section: tag, flags, offset, size
	hwcapsTag      = 1  // cache_extension_tag_glibc_hwcaps: offsets of strings
)

// An Entry is a library in the cache.
type Entry struct {
	Name  string // DT_SONAME
	Path  string
	Flags uint32 // of what kind of object it is and of which architecture
	hwcap uint64
}

// A Cache is a file's contents, as the dynamic linker sees them. Entries are in the order of
// the file, in which the linker searches.
type Cache struct {
	Entries []Entry
	data    []byte // from magic on
}

// Parse reads a cache.
func Parse(file []byte) (*Cache, error) {
	at := bytes.Index(file, []byte(magic))
	if at < 0 || len(file)-at < headerSize {
		return nil, errors.New("it is no ld.so.cache of glibc 2.2 or later")
	}
	c := &Cache{data: file[at:]}
	if c.data[flagsAt]&endianMask == bigEndian {
		return nil, errors.New("it is an ld.so.cache of a big-endian machine")
	}
	count := uint64(c.word(countAt))
	if count > uint64(len(c.data)-headerSize)/entrySize {
		return nil, fmt.Errorf("it is cut off: %d entries in %d bytes", count, len(c.data))
	}
	for i := range int(count) {
		at := headerSize + i*entrySize
		name, err := c.text(c.word(at + 4))
		path, pathErr := c.text(c.word(at + 8))
		if err := errors.Join(err, pathErr); err != nil {
			return nil, err
		}
		c.Entries = append(c.Entries, Entry{name, path, c.word(at), binary.LittleEndian.Uint64(c.data[at+16:])})
	}
	return c, nil
}

func (c *Cache) word(at int) uint32 { return binary.LittleEndian.Uint32(c.data[at:]) }

// text returns the string at an offset.
func (c *Cache) text(at uint32) (string, error) {
	if uint64(at) >= uint64(len(c.data)) {
		return "", fmt.Errorf("it is cut off: a string at %d of %d bytes", at, len(c.data))
	}
	text, _, ended := bytes.Cut(c.data[at:], []byte{0})
	if !ended {
		return "", errors.New("it is cut off: a string does not end")
	}
	return string(text), nil
}

// Find lists the paths of the libraries of a name, the first first.
func (c *Cache) Find(name string) []string {
	var paths []string
	for _, e := range c.Entries {
		if e.Name == name {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// Add returns a file with one more library, which is of the same kind as the one of name like.
func (c *Cache) Add(name, path, like string) ([]byte, error) {
	k := slices.IndexFunc(c.Entries, func(e Entry) bool { return e.Name == like && e.hwcap == 0 })
	if k < 0 {
		return nil, fmt.Errorf("it has no %s", like)
	}
	// The linker's search is binary, in a descending order.
	place := slices.IndexFunc(c.Entries, func(e Entry) bool { return compare(e.Name, name) <= 0 })
	if place < 0 {
		place = len(c.Entries)
	}
	// All data behind the entries moves by the size of one: the strings, at the offsets that
	// entries and the extension have, and the extension itself. The new strings are at the end.
	at := headerSize + place*entrySize
	end := len(c.data) + entrySize
	entry := make([]byte, 0, entrySize)
	entry = binary.LittleEndian.AppendUint32(entry, c.Entries[k].Flags)
	// The offsets are before the move, as those of the other entries.
	entry = binary.LittleEndian.AppendUint32(entry, uint32(end-entrySize))
	entry = binary.LittleEndian.AppendUint32(entry, uint32(end-entrySize+len(name)+1))
	entry = append(entry, make([]byte, entrySize-len(entry))...) // no lowest kernel version, no capabilities
	grown := &Cache{data: slices.Concat(c.data[:at], entry, c.data[at:], []byte(name), []byte{0}, []byte(path), []byte{0})}
	grown.set(countAt, uint32(len(c.Entries)+1))
	grown.set(stringsAt, c.word(stringsAt)+uint32(len(name)+len(path)+2))
	for i := range len(c.Entries) + 1 {
		grown.move(headerSize + i*entrySize + 4)
		grown.move(headerSize + i*entrySize + 8)
	}
	if err := grown.moveExtension(); err != nil {
		return nil, err
	}
	return grown.data, nil
}

func (c *Cache) set(at int, value uint32) { binary.LittleEndian.PutUint32(c.data[at:], value) }

// move adds the size of an entry to the offset at a place.
func (c *Cache) move(at int) { c.set(at, c.word(at)+entrySize) }

// moveExtension adds the size of an entry to the extension's offsets.
func (c *Cache) moveExtension() error {
	if c.word(extensionAt) == 0 {
		return nil
	}
	c.move(extensionAt)
	at := uint64(c.word(extensionAt))
	size := uint64(len(c.data))
	if at+extensionHead > size || c.word(int(at)) != extensionMagic {
		return errors.New("its extension is none")
	}
	count := uint64(c.word(int(at) + 4))
	if count > (size-at-extensionHead)/sectionSize {
		return errors.New("its extension is cut off")
	}
	for i := range int(count) {
		section := int(at) + extensionHead + i*sectionSize
		c.move(section + 8)
		from, length := uint64(c.word(section+8)), uint64(c.word(section+12))
		if c.word(section) != hwcapsTag {
			continue
		}
		if from+length > size {
			return errors.New("its extension is cut off")
		}
		for k := uint64(0); k+4 <= length; k += 4 {
			c.move(int(from + k))
		}
	}
	return nil
}

// compare orders names as the linker does: numbers by their value (_dl_cache_libcmp in
// elf/dl-cache.c).
func compare(a, b string) int {
	for a != "" && b != "" {
		switch {
		case isDigit(a[0]) && isDigit(b[0]):
			var x, y int32
			x, a = number(a)
			y, b = number(b)
			if x != y {
				return int(x) - int(y)
			}
		case isDigit(a[0]):
			return 1
		case isDigit(b[0]):
			return -1
		case a[0] != b[0]:
			return int(int8(a[0])) - int(int8(b[0]))
		default:
			a, b = a[1:], b[1:]
		}
	}
	switch {
	case a != "" && isDigit(a[0]):
		return 1
	case b != "" && isDigit(b[0]):
		return -1
	}
	return len(a) - len(b)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// number returns the number at the beginning of text, and the rest.
func number(text string) (n int32, rest string) {
	for text != "" && isDigit(text[0]) {
		n = n*10 + int32(text[0]-'0')
		text = text[1:]
	}
	return n, text
}
