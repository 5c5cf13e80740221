package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A workflow has what GitHub runs of a file of .github/workflows.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct {
			Uses, Run string
			Env       map[string]string
		}
	}
}

// readWorkflow reads the workflow of a release.
func readWorkflow(t *testing.T) (w workflow) {
	t.Helper()
	text, err := os.ReadFile("../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs the commands of a job in a folder, as GitHub does where no shell is named. It leaves out dist-check, which runs these tests.
func (w workflow) run(t *testing.T, job, folder string, env []string) error {
	t.Helper()
	ran := 0
	for _, s := range w.Jobs[job].Steps {
		if s.Run == "" || s.Run == "make dist-check" {
			continue
		}
		cmd := exec.Command("bash", "-e", "-c", s.Run)
		cmd.Dir, cmd.Env = folder, slices.Concat(os.Environ(), env)
		for name, value := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.Run, err, out)
		}
		ran++
	}
	if ran == 0 {
		t.Fatalf("the job %s runs nothing", job)
	}
	return nil
}

const (
	tag   = "v9.9.9-rc.1"
	owner = "owner/name"
)

// checkOut returns a folder as actions/checkout leaves it for a tag that somebody has pushed: there the tag is a plain one. The
// commit of the tag has what was unreleased under its version.
func checkOut(t *testing.T, tagged ...string) string {
	t.Helper()
	origin, folder := filepath.Join(t.TempDir(), "origin"), filepath.Join(t.TempDir(), "work")
	git := func(arguments ...string) {
		t.Helper()
		if out, err := exec.Command("git", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	by := func(arguments ...string) {
		t.Helper()
		git(slices.Concat([]string{"-C", origin, "-c", "user.name=n", "-c", "user.email=e@example.com"}, arguments)...)
	}
	git("clone", "--quiet", "--no-hardlinks", "..", origin)
	log := filepath.Join(origin, "CHANGELOG.md")
	text, err := os.ReadFile(log)
	if err == nil {
		err = os.WriteFile(log, bytes.Replace(text, []byte("## Unreleased"), []byte("## ["+strings.TrimPrefix(tag, "v")+"] - 2026-11-29"), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	by("commit", "--quiet", "--all", "--message", "docs: name the version")
	by(slices.Concat([]string{"tag"}, tagged, []string{tag})...)
	git("clone", "--quiet", origin, folder)
	git("-C", folder, "update-ref", "refs/tags/"+tag, "HEAD")
	return folder
}

// environment returns the variables that GitHub sets, and the file into which the command gh writes its arguments there.
func environment(t *testing.T, folder string) (env []string, arguments string) {
	t.Helper()
	home := t.TempDir()
	arguments = filepath.Join(home, "arguments")
	if err := os.WriteFile(filepath.Join(home, "gh"), []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >'"+arguments+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{
		"GITHUB_WORKSPACE=" + folder, "GITHUB_REF_NAME=" + tag, "GITHUB_REPOSITORY=" + owner,
		"GIT_CONFIG_GLOBAL=" + filepath.Join(home, "config"), "PATH=" + home + ":" + os.Getenv("PATH"),
	}, arguments
}

// TestWorkflow runs the commands of the workflow for a tag: all files that `make dist` has made are published, as a pre-release
// where the tag says so.
func TestWorkflow(t *testing.T) {
	if os.Getenv("NDKLAB_LONG") == "" {
		t.Skip("it builds everything: set NDKLAB_LONG=1")
	}
	w, folder := readWorkflow(t), checkOut(t, "--annotate", "--message", "a release")
	env, arguments := environment(t, folder)
	if err := w.run(t, "build", folder, env); err != nil {
		t.Fatal(err)
	}
	// The other job has another machine, and the files alone.
	other := t.TempDir()
	if err := os.Rename(filepath.Join(folder, "dist"), filepath.Join(other, "dist")); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(other, "dist", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.run(t, "publish", other, env); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(arguments)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"release", "create", tag, "--repo", owner, "--verify-tag", "--title", tag, "--notes-file", "RELEASE.md", "--prerelease"}
	for _, file := range made {
		if name := filepath.Base(file); name != "RELEASE.md" {
			want = append(want, "dist/"+name)
		}
	}
	if got := strings.Fields(string(text)); !slices.Equal(got, want) {
		t.Errorf("gh was told %q, want %q", got, want)
	}
	if !slices.Contains(want, "dist/ndklab_"+strings.TrimPrefix(tag, "v")+"_linux_amd64.tar.gz") {
		t.Errorf("the files have another version: %q", want)
	}
	if notes, err := os.ReadFile(filepath.Join(other, "RELEASE.md")); err != nil || len(notes) == 0 {
		t.Errorf("the release has no text: %v", err)
	}
}

// TestWorkflowOfPlainTag: a tag that git describe does not see releases nothing.
func TestWorkflowOfPlainTag(t *testing.T) {
	folder := checkOut(t)
	env, _ := environment(t, folder)
	err := readWorkflow(t).run(t, "build", folder, env)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(err.Error(), "expected the annotated tag "+tag) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "dist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files of a release: %v", err)
	}
}
