package ldcache

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// installed is the system's cache.
func installed(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Skip(err)
	}
	return file
}

// ldconfig lists a cache by the program that wrote it.
func ldconfig(t *testing.T, file []byte) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("ldconfig")
	if err != nil {
		program = "/sbin/ldconfig"
	}
	out, err := exec.Command(program, "-p", "-C", path).CombinedOutput()
	if err != nil {
		t.Skipf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[1:] // the first counts
}

func TestParse(t *testing.T) {
	file := installed(t)
	c, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, e := range c.Entries {
		got = append(got, e.Name+" "+e.Path)
	}
	for _, line := range ldconfig(t, file) {
		if name, path, ok := strings.Cut(line, " => "); ok {
			want = append(want, strings.Fields(name)[0]+" "+path)
		}
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("got %d entries, ldconfig %d, or others", len(got), len(want))
	}
	if paths := c.Find("libc.so.6"); len(paths) == 0 || !strings.HasSuffix(paths[0], "/libc.so.6") {
		t.Errorf("libc.so.6 is at %q", paths)
	}
	for i := 1; i < len(c.Entries); i++ {
		if a, b := c.Entries[i-1].Name, c.Entries[i].Name; compare(a, b) < 0 || compare(b, a) > 0 {
			t.Errorf("%s is before %s", a, b)
		}
	}
}

func TestAdd(t *testing.T) {
	file := installed(t)
	before := slices.Clone(file)
	c, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	list := ldconfig(t, file)
	for _, name := range []string{"libndklab-test.so.1", "libz.so.9999", "AAA", "zzz", "ld-linux.so.1"} {
		grown, err := c.Add(name, "/opt/some folder/"+name, "libc.so.6")
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(grown)
		if err != nil {
			t.Fatal(err)
		}
		if paths := again.Find(name); len(paths) != 1 || paths[0] != "/opt/some folder/"+name {
			t.Errorf("%s is at %q", name, paths)
		}
		now := ldconfig(t, grown)
		added := slices.IndexFunc(now, func(line string) bool { return strings.Contains(line, "/opt/some folder/"+name) })
		if added < 0 {
			t.Fatalf("ldconfig does not list %s", name)
		}
		if !strings.Contains(now[added], "libc6") {
			t.Errorf("ldconfig: %s", now[added])
		}
		if !slices.Equal(slices.Delete(now, added, added+1), list) {
			t.Errorf("with %s ldconfig lists others than before", name)
		}
		for i := 1; i < len(again.Entries); i++ {
			if a, b := again.Entries[i-1].Name, again.Entries[i].Name; compare(a, b) < 0 {
				t.Errorf("%s is before %s", a, b)
			}
		}
	}
	if !bytes.Equal(file, before) {
		t.Error("the file itself has changed")
	}
	if _, err := c.Add("a", "/a", "no such library"); err == nil {
		t.Error("a library was added that is like none")
	}
}

// A cache that ldconfig of glibc before 2.32 wrote has the older format in front.
func TestOlder(t *testing.T) {
	file := installed(t)
	c, err := Parse(append([]byte("ld.so-1.7.0\x00\x00\x00\x00\x00"), file...))
	if err != nil || len(c.Entries) < 10 {
		t.Errorf("%v, %v", c, err)
	}
}

func TestCompare(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"liba", "liba", 0}, {"liba.so.2", "liba.so.10", -1}, {"liba.so.10", "liba.so.9", 1},
		{"liba", "libb", -1}, {"liba", "lib1", -1}, {"lib1", "liba", 1}, {"lib", "liba", -1}, {"lib", "lib0", -1}, {"lib01", "lib1", 0},
	} {
		if got := compare(test.a, test.b); (got < 0) != (test.want < 0) || (got > 0) != (test.want > 0) {
			t.Errorf("%s, %s: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestParseRefused(t *testing.T) {
	big := slices.Clone(installed(t))
	big[bytes.Index(big, []byte(magic))+flagsAt] = bigEndian
	many := slices.Clone(installed(t))
	binary.LittleEndian.PutUint32(many[bytes.Index(many, []byte(magic))+countAt:], 1<<31)
	for _, file := range [][]byte{nil, []byte("ld.so-1.7.0"), []byte(magic), big, many, installed(t)[:200]} {
		if _, err := Parse(file); err == nil {
			t.Errorf("%d bytes are parsed", len(file))
		}
	}
}

// FuzzAdd mangles a cache: an error comes of it, or one that has the library.
func FuzzAdd(f *testing.F) {
	small, err := smallCache()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(small)
	f.Add(installed(f)[:4096])
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := Parse(file)
		if err != nil {
			return
		}
		grown, err := c.Add("liba.so.1", "/liba.so.1", "libc.so.6")
		if err != nil {
			return
		}
		if len(grown) != len(c.data)+entrySize+len("liba.so.1\x00/liba.so.1\x00") {
			t.Errorf("%d bytes became %d", len(c.data), len(grown))
		}
	})
}

// smallCache has two libraries and an extension.
func smallCache() ([]byte, error) {
	le := binary.LittleEndian
	const names = headerSize + 2*entrySize
	text := "libz.so.1\x00/z\x00libc.so.6\x00/c\x00v3\x00\x00" // 30 bytes
	b := append([]byte(magic), 2, 0, 0, 0)
	b = le.AppendUint32(b, uint32(len(text)))
	b = append(b, 2, 0, 0, 0)
	b = le.AppendUint32(b, uint32(names+len(text)))
	b = append(b, make([]byte, headerSize-len(b))...)
	for _, e := range [][2]uint32{{names, names + 10}, {names + 13, names + 23}} {
		b = le.AppendUint32(b, 3)
		b = le.AppendUint32(b, e[0])
		b = le.AppendUint32(b, e[1])
		b = append(b, make([]byte, 12)...)
	}
	b = append(b, text...)
	at := uint32(len(b) + extensionHead + sectionSize)
	for _, word := range []uint32{extensionMagic, 1, hwcapsTag, 0, at, 4, names + 26} {
		b = le.AppendUint32(b, word)
	}
	_, err := Parse(b)
	return b, err
}
