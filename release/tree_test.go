package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

var at = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

// list returns a line for each member of a tar: its mode, its name and what it links to.
func list(t *testing.T, content []byte) string {
	t.Helper()
	var lines []string
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(at) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s has the time %v and the owner %d:%d %q", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
		mode := h.FileInfo().Mode().String()
		lines = append(lines, strings.TrimSpace(mode+" "+h.Name+" "+h.Linkname))
	}
}

// A package, an archive and an image have the same files, at places of their own.
func TestPlaces(t *testing.T) {
	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{"ndklab": 0o700, "verbs/libibverbs.so.1": 0o600} {
		if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	programs, err := readTree(folder)
	if err != nil {
		t.Fatal(err)
	}
	source := programs[0].source
	documents := tree{{path: "man/ndklab.1", source: source}, {path: "completions/_ndklab", source: source}, {path: "LICENSE", source: source}}
	for _, c := range []struct {
		name string
		tree tree
		want string
	}{
		{"archive", append(programs, documents...).under("ndklab_1"), `drwxr-xr-x ndklab_1/
-rw-r--r-- ndklab_1/LICENSE
drwxr-xr-x ndklab_1/completions/
-rw-r--r-- ndklab_1/completions/_ndklab
drwxr-xr-x ndklab_1/man/
-rw-r--r-- ndklab_1/man/ndklab.1
-rwxr-xr-x ndklab_1/ndklab
drwxr-xr-x ndklab_1/verbs/
-rw-r--r-- ndklab_1/verbs/libibverbs.so.1`},
		{"image", forImage(installed(programs, documents)), `drwxr-xr-x dev/
drwxr-xr-x proc/
drwxr-xr-x run/
drwxr-xr-x sys/
dtrwxrwxrwx tmp/
drwxr-xr-x usr/
drwxr-xr-x usr/bin/
Lrwxrwxrwx usr/bin/ndklab ../lib/ndklab/ndklab
drwxr-xr-x usr/lib/
drwxr-xr-x usr/lib/ndklab/
-rwxr-xr-x usr/lib/ndklab/ndklab
drwxr-xr-x usr/lib/ndklab/verbs/
-rw-r--r-- usr/lib/ndklab/verbs/libibverbs.so.1
drwxr-xr-x usr/share/
drwxr-xr-x usr/share/doc/
drwxr-xr-x usr/share/doc/ndklab/
-rw-r--r-- usr/share/doc/ndklab/LICENSE`},
	} {
		var content bytes.Buffer
		if err := c.tree.writeTar(&content, at); err != nil {
			t.Fatal(err)
		}
		if got := list(t, content.Bytes()); got != c.want {
			t.Errorf("the %s has\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	places := make(map[string]string)
	for _, format := range []string{"deb", "rpm"} {
		for _, content := range (release{version: "v1.0.0", date: at}).info(format, "amd64", installed(programs, documents)).Contents {
			places[format] += content.Destination + "\n"
		}
	}
	if want := strings.Replace(places["rpm"], "/usr/share/zsh/site-functions/_ndklab", "/usr/share/zsh/vendor-completions/_ndklab", 1); places["deb"] != want || want == places["rpm"] {
		t.Errorf(".deb has\n%s\n.rpm has\n%s", places["deb"], places["rpm"])
	}
}

// Who ships a module without a licence ships what nobody allows.
func TestLicence(t *testing.T) {
	folder := t.TempDir()
	module := cdx.Component{Name: "example.org/module", Version: "v1.0.0"}
	if _, err := license(&module, ""); err == nil || err.Error() != "its sources are not on this machine: go mod download" {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := license(&module, folder); err == nil || !strings.HasSuffix(err.Error(), ": what is shipped must have one") {
		t.Errorf("without a licence: %v", err)
	}
	text, err := os.ReadFile(filepath.Join("..", "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"LICENSE.md": text, "NOTICE": []byte("a notice"), "main.go": []byte("package main")} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := license(&module, folder)
	if err != nil {
		t.Fatal(err)
	}
	if id := (*module.Licenses)[0].License.ID; id != "Apache-2.0" {
		t.Errorf("the licence is %s", id)
	}
	want := "example.org/module v1.0.0 (Apache-2.0)\n\n" + string(bytes.TrimSpace(text)) + "\n\na notice\n\n" + strings.Repeat("-", 80) + "\n\n"
	if string(got) != want {
		t.Errorf("the texts are %d bytes, want %d", len(got), len(want))
	}
}
