package ui

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	access "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/terminal"
)

const envConfined = "NDKLAB_TEST_CONFINED"

// TestMain is the confined server, too.
func TestMain(m *testing.M) {
	folder := os.Getenv(envConfined)
	if folder == "" {
		leak.Main(m)
		return
	}
	if err := confined(folder); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// confined confines this process, and tries out in a folder what it can and cannot do then.
func confined(folder string) error {
	lead, other := filepath.Join(folder, "lead"), filepath.Join(folder, "other")
	if err := confineServer(lead); err != nil {
		return err
	}
	var wrong error
	control, peer, err := terminal.Open()
	if err != nil {
		wrong = fmt.Errorf("open a terminal: %w", err)
	} else {
		wrong = errors.Join(control.Close(), peer.Close())
	}
	if err := os.RemoveAll(lead); err != nil {
		wrong = errors.Join(wrong, err)
	}
	if _, err := os.ReadFile(other); err != nil {
		wrong = errors.Join(wrong, err)
	}
	refused := map[string]func() error{
		"start a program": func() error { return exec.Command("/proc/self/exe").Run() },
		"make a file":     func() error { return os.WriteFile(filepath.Join(folder, "new"), nil, 0o600) },
	}
	if version, err := access.LandlockGetABIVersion(); err == nil && version > 0 {
		refused["write to a file"] = func() error { _, err := os.OpenFile(other, os.O_WRONLY, 0); return err }
		refused["remove a file"] = func() error { return os.Remove(other) }
	}
	for what, f := range refused {
		if err := f(); !errors.Is(err, os.ErrPermission) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", what, err))
		}
	}
	return wrong
}

// TestConfineServer: the server opens terminals, and removes the folder that led a browser to it. Other files it can read alone.
func TestConfineServer(t *testing.T) {
	folder := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(folder, "lead"), 0o700), os.WriteFile(filepath.Join(folder, "lead", "file"), nil, 0o600),
		os.WriteFile(filepath.Join(folder, "other"), []byte("kept"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envConfined+"="+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 || files[0].Name() != "other" {
		t.Errorf("%v, %v", files, err)
	}
}
