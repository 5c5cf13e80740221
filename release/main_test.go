package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The same commit gives the same bytes, wherever and by whomever it is built: the second folder has another path, another
// umask, another time zone, and nothing that was compiled before.
func TestReproducible(t *testing.T) {
	if os.Getenv("NDKLAB_LONG") == "" {
		t.Skip("it builds everything, twice: set NDKLAB_LONG=1")
	}
	first := dist(t, filepath.Join(t.TempDir(), "a"), "022")
	second := dist(t, filepath.Join(t.TempDir(), "another", "place"), "077", "TZ=Asia/Tokyo", "LANG=C", "GOCACHE="+t.TempDir())
	for name, content := range first {
		if !bytes.Equal(content, second[name]) {
			t.Errorf("%s: the two builds differ (%d and %d bytes)", name, len(content), len(second[name]))
		}
	}
	if len(first) != len(second) {
		t.Errorf("the builds have %d and %d files", len(first), len(second))
	}
	for _, arch := range architectures {
		for _, extension := range []string{".tar.gz", ".deb", ".rpm", ".oci.tar", ".cdx.json"} {
			if !has(first, arch+extension) {
				t.Errorf("there is no file for %s that ends with %s", arch, extension)
			}
		}
	}
}

// dist clones the commit into a folder, makes a release there, and returns its files by their names.
func dist(t *testing.T, folder, umask string, environment ...string) map[string][]byte {
	t.Helper()
	if out, err := exec.Command("git", "clone", "--quiet", "--no-hardlinks", "..", folder).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	build := exec.Command("sh", "-c", "umask "+umask+" && make dist")
	build.Dir, build.Env = folder, append(os.Environ(), environment...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make dist in %s: %v\n%s", folder, err, out)
	}
	files := make(map[string][]byte)
	list, err := os.ReadDir(filepath.Join(folder, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		if files[file.Name()], err = os.ReadFile(filepath.Join(folder, "dist", file.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func has(files map[string][]byte, suffix string) bool {
	for name := range files {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// In the order that dpkg --compare-versions has, too.
func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"a1c3320c":               "0~a1c3320c",
		"a1c3320c-dirty":         "0~a1c3320c+dirty",
		"v1.2.0-rc.1":            "1.2.0~rc.1",
		"v1.2.0":                 "1.2.0",
		"v1.2.0-3-gabcdef0":      "1.2.0+3.gabcdef0",
		"v1.2.0-rc.1-3-gabcdef0": "1.2.0~rc.1+3.gabcdef0",
	} {
		if got := packageVersion(version); got != want {
			t.Errorf("packageVersion(%q) is %q, want %q", version, got, want)
		}
	}
}

func TestSection(t *testing.T) {
	const text = "# Changelog\n\n## Unreleased\n\n- new\n\n### Fixed\n\n- old\n\n## [1.0.0] - 2026-01-01\n\n- first\n\n## [1.0.0-rc.1]\n\n- before\n"
	for heading, want := range map[string]string{"Unreleased": "- new\n\n### Fixed\n\n- old\n", "1.0.0": "- first\n", "1.0.0-rc.1": "- before\n"} {
		if got, err := section(text, heading); err != nil || got != want {
			t.Errorf("section %s is %q, %v; want %q", heading, got, err, want)
		}
	}
	for text, want := range map[string]string{
		text:                          `there is no heading "## [2.0.0]", expected one for this version`,
		"## 2.0.0\n\n## 1.0.0\n\n- x": "nothing is below the heading of 2.0.0",
	} {
		if _, err := section(text, "2.0.0"); err == nil || err.Error() != want {
			t.Errorf("section says %v, want %s", err, want)
		}
	}
}

// The text of a release is read where it has no files beside it.
func TestLinked(t *testing.T) {
	const text = "a [page](docs/page.md#part), and [another](https://example.org/a)"
	const want = "a [page](https://github.com/ndklab/ndklab/blob/f00d/docs/page.md#part), and [another](https://example.org/a)"
	if got := (release{commit: "f00d"}).linked(text); got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
}

func TestPackagesOfPage(t *testing.T) {
	licences, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(pageLicences)))
	if err != nil {
		t.Fatal(err)
	}
	components, err := packagesOfPage(licences)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, c := range components {
		urls = append(urls, c.PackageURL[:strings.LastIndex(c.PackageURL, "@")])
	}
	const want = "pkg:npm/%40xterm/addon-fit pkg:npm/%40xterm/xterm pkg:npm/cytoscape pkg:npm/uplot"
	if got := strings.Join(urls, " "); got != want {
		t.Errorf("the page has %s, want %s", got, want)
	}
}
