package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(FolderVariable, dir)
	all := []string{Ibverbs, Engine, Process}
	_, err := Folder()
	for _, name := range all {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("an empty folder: %v", err)
		}
	}
	for _, name := range all {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if folder, err := Folder(); err != nil || folder != dir {
		t.Errorf("%s, %v", folder, err)
	}
	t.Setenv(FolderVariable, "")
	if folder, err := Folder(); err == nil || folder != "" {
		t.Errorf("beside a test: %s, %v", folder, err)
	}
}

func TestLook(t *testing.T) {
	s := Look()
	out, err := exec.Command("getconf", "GNU_LIBC_VERSION").Output()
	if err != nil {
		t.Skip(err)
	}
	if want := strings.TrimSpace(string(out)); "glibc "+s.Glibc != want || s.Musl {
		t.Errorf("glibc %q, want %q; musl: %v", s.Glibc, want, s.Musl)
	}
	if s.Unfit != nil {
		t.Errorf("unfit: %v", s.Unfit)
	}
	for _, path := range append(s.Ibverbs, s.RDMACM...) {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
