package labtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// evidenceFolder returns the folder that keeps the evidence of a lab, if its test
// fails.
func (l *Lab) evidenceFolder() (string, error) {
	root, err := artifacts(l.t)
	return filepath.Join(root, fmt.Sprintf("%s-%d", l.topo.Name, l.topo.Seed)), err
}

// artifacts is the folder for the evidence of a test's labs: NDKLAB_ARTIFACTS; that of
// package testing if it is to be kept (go test -artifacts); or one among temporary files.
func artifacts(t testing.TB) (string, error) {
	if dir := os.Getenv(envArtifacts); dir != "" {
		return filepath.Abs(dir)
	}
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir(), nil
	}
	return filepath.Join(os.TempDir(), "ndklab-artifacts-"+strconv.Itoa(os.Geteuid())), nil
}

// keep writes what the lab remembers, and returns where. It goes on after errors.
func (l *Lab) keep() (dir string, err error) {
	dir, err = l.evidenceFolder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := func(name string, write func(io.Writer) error) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	return dir, errors.Join(
		file("topology.yaml", func(w io.Writer) error {
			_, err := io.WriteString(w, l.doc.text)
			return err
		}),
		l.memory.Write(context.Background(), file), // which has a limit of its own
	)
}

// lastEvents is the number of events in the output of a test that failed.
const lastEvents = 12

// tell keeps the evidence of a lab and says what there is, and how to repeat the test.
func (l *Lab) tell() string {
	var text strings.Builder
	fmt.Fprintf(&text, "lab %s, seed %d, the last that happened:\n", l.topo.Name, l.topo.Seed)
	all := l.Events()
	for _, e := range all[max(0, len(all)-lastEvents):] {
		fmt.Fprintf(&text, "%9.3fs %-16s %s\n", e.At.Seconds(), e.Kind, e.Text)
	}
	dir, err := l.keep()
	if err != nil {
		fmt.Fprintf(&text, "evidence is not complete: %v\n", explain(err))
	}
	if entries, err := os.ReadDir(dir); err == nil {
		fmt.Fprintf(&text, "evidence is in %s:", dir)
		for _, entry := range entries {
			text.WriteString(" " + entry.Name())
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "to repeat it: %s=%d go test -run '^%s$'", envSeed, l.topo.Seed, strings.ReplaceAll(l.t.Name(), "/", "$/^"))
	return text.String()
}
