package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
)

// thirdParties is the file with the licences of all that others have written.
const thirdParties = "THIRD-PARTY-LICENSES.txt"

// completions are the scripts by which shells complete, by the shell, in an archive and where packages put them.
var completions = []struct{ shell, file, installed string }{
	{"bash", "completions/ndklab.bash", "usr/share/bash-completion/completions/ndklab"},
	{"zsh", "completions/_ndklab", "usr/share/zsh/site-functions/_ndklab"},
	{"fish", "completions/ndklab.fish", "usr/share/fish/vendor_completions.d/ndklab.fish"},
}

// documents returns all of an archive that is no program. What the commands themselves say of them is written to scratch.
func (r release) documents(scratch string) (tree, error) {
	for _, folder := range []string{"man", "completions"} {
		if err := os.MkdirAll(filepath.Join(scratch, folder), 0o755); err != nil {
			return nil, err
		}
	}
	set := fmt.Sprintf("-X main.version=%s -X main.date=%s", r.version, r.date.Format("2006-01-02T15:04:05Z07:00"))
	write := exec.Command("go", "run", "-trimpath", "-buildvcs=false", "-tags", "manual", "-ldflags", set, "./cmd/ndklab", filepath.Join(scratch, "man"))
	write.Dir, write.Stderr = r.root, os.Stderr
	if err := write.Run(); err != nil {
		return nil, fmt.Errorf("write manual pages: %w", err)
	}
	for _, c := range completions {
		script, err := exec.Command(filepath.Join(r.programs, "linux_"+runtime.GOARCH, "ndklab"), "completion", c.shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completions for %s: %w", c.shell, err)
		}
		if err := os.WriteFile(filepath.Join(scratch, c.file), script, 0o644); err != nil {
			return nil, err
		}
	}
	t, err := readTree(scratch)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "examples/pair.ndklab.yaml"} {
		t = append(t, entry{path: name, source: filepath.Join(r.root, name)})
	}
	return t, nil
}

// installed returns the tree of a machine on which a package is installed. All programs are in one folder, in which ndklab
// finds ndklab-monitor and the libraries of verbs as in an archive; PATH has a link to ndklab alone.
func installed(programs, documents tree) tree {
	t := programs.under("usr/lib/ndklab")
	t = append(t, entry{path: "usr/bin/ndklab", link: "../lib/ndklab/ndklab"})
	for _, e := range documents {
		switch folder := path.Dir(e.path); folder {
		case "man":
			e.path = path.Join("usr/share/man/man1", path.Base(e.path))
		case "completions":
			at := slices.IndexFunc(completions, func(c struct{ shell, file, installed string }) bool { return c.file == e.path })
			e.path = completions[at].installed
		default:
			e.path = path.Join("usr/share/doc/ndklab", e.path)
		}
		t = append(t, e)
	}
	return t
}
