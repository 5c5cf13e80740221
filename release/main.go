// Command release makes the files of a release from programs that are built: archives, packages, images, manual pages,
// completions, licences, a bill of materials and checksums. `make dist` builds the programs and runs it.
//
// It is a module of its own, so that users of ndklab's packages do not get the libraries that it needs. The same programs
// give the same bytes: every time in a file is that of the commit, every owner is root, every list is sorted.
//
// Start reading at release.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A release says what is made of what.
type release struct {
	root     string // the folder of ndklab's sources
	programs string // a folder for each architecture, such as linux_amd64, with what Makefile has built for it
	out      string // where the files of the release go
	version  string // as git describe says it
	commit   string
	date     time.Time // of the commit
}

// architectures are those for which Makefile builds programs, by Go's names.
var architectures = []string{"amd64", "arm64"}

func main() {
	var r release
	flag.StringVar(&r.root, "root", "..", "the folder of ndklab's sources")
	flag.StringVar(&r.programs, "programs", "", "the folder of the programs")
	flag.StringVar(&r.out, "out", "", "the folder of the release, which must be empty")
	flag.StringVar(&r.version, "version", "", "what git describe says of the commit")
	flag.StringVar(&r.commit, "commit", "", "the commit")
	flag.Func("date", "the commit's date, as 2026-11-29T00:00:00Z", func(s string) (err error) {
		r.date, err = time.Parse(time.RFC3339, s)
		return err
	})
	flag.Parse()
	if err := r.make(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// make writes all files of the release.
func (r release) make() error {
	scratch, err := os.MkdirTemp("", "ndklab-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	notes, err := r.notes()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "RELEASE.md"), notes, 0o644); err != nil {
		return err
	}
	documents, err := r.documents(filepath.Join(scratch, "documents"))
	if err != nil {
		return err
	}
	for _, arch := range architectures {
		if err := r.makeFor(arch, documents, filepath.Join(scratch, arch)); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return r.sum()
}

// makeFor writes the files of one architecture.
func (r release) makeFor(arch string, documents tree, scratch string) error {
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return err
	}
	programs, err := readTree(filepath.Join(r.programs, "linux_"+arch))
	if err != nil {
		return err
	}
	bill, licences, err := r.bill(programs)
	if err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	if err := os.WriteFile(r.file(arch, "cdx.json"), bill, 0o644); err != nil {
		return err
	}
	third := filepath.Join(scratch, thirdParties)
	if err := os.WriteFile(third, licences, 0o644); err != nil {
		return err
	}
	documents = append(documents, entry{path: thirdParties, source: third})
	if err := r.archive(arch, programs, documents); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	installed := installed(programs, documents)
	if err := r.packages(arch, installed); err != nil {
		return err
	}
	if err := r.image(arch, installed, scratch); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// file returns the path of a file of the release for an architecture.
func (r release) file(arch, extension string) string {
	return filepath.Join(r.out, fmt.Sprintf("ndklab_%s_linux_%s.%s", strings.TrimPrefix(r.version, "v"), arch, extension))
}

// tagged is the version of a commit that has a tag.
var tagged = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)$`)

// notes returns the release's part of CHANGELOG.md: that of the version, or what is not released where the commit has no tag.
func (r release) notes() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	heading := "Unreleased"
	if found := tagged.FindStringSubmatch(r.version); found != nil {
		heading = found[1]
	}
	notes, err := section(string(text), heading)
	if err != nil {
		return nil, fmt.Errorf("CHANGELOG.md: %w", err)
	}
	return []byte(r.linked(notes)), nil
}

// target matches the target of a link in Markdown.
var target = regexp.MustCompile(`\]\([^)]+\)`)

// linked returns a text of the folder of sources for another place: its links point to the commit on GitHub.
func (r release) linked(text string) string {
	return target.ReplaceAllStringFunc(text, func(link string) string {
		if strings.HasPrefix(link, "](https://") {
			return link
		}
		return "](https://github.com/ndklab/ndklab/blob/" + r.commit + "/" + strings.TrimPrefix(link, "](")
	})
}

// section returns what a document has below a heading of the second level, such as "## [1.2.0] - 2026-12-01", up to the next one.
func section(text, name string) (string, error) {
	heading := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(name) + `\]?(?: - \S+)?$`).FindStringIndex(text)
	if heading == nil {
		return "", fmt.Errorf("there is no heading %q, expected one for this version", "## ["+name+"]")
	}
	body, _, _ := strings.Cut(text[heading[1]:], "\n## ")
	if strings.TrimSpace(body) == "" {
		return "", errors.New("nothing is below the heading of " + name)
	}
	return strings.TrimSpace(body) + "\n", nil
}
