package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"github.com/ndklab/ndklab/topology"
)

// wantOutput runs a script in a node and wants it to print that.
func wantOutput(t *testing.T, a *Agent, script, want string) {
	t.Helper()
	if status, out, stderr := run(t, a, sh(script), ""); status != 0 || out != want {
		t.Errorf("%s: status %d, output %q, want %q; %s", script, status, out, want, stderr)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"there": "host's", "folder/kept": "kept", "folder/sub/kept": "sub kept\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "folder"), 0o751), os.Chmod(filepath.Join(dir, "folder/sub"), 0o710), os.Symlink("folder", filepath.Join(dir, "link")), os.Symlink("there", filepath.Join(dir, "alias"))); err != nil {
		t.Fatal(err)
	}
	a, log := started(t, Config{Lab: "l", Name: "a", Files: []topology.File{
		{Path: dir + "/there", Mode: 0o600, Content: []byte("node's\n")},
		{Path: dir + "/folder/new", Mode: 0o755, Content: []byte("#!/bin/sh\necho run")},
		{Path: dir + "/folder/sub/new", Mode: 0o644, Content: []byte("sub\n")},
		{Path: dir + "/folder/deep/er/new", Mode: 0o644, Content: []byte{0, 1, 0xff}},
		{Path: dir + "/link/linked", Mode: 0o444, Content: nil},
		{Path: "/etc/hosts", Mode: 0o644, Content: []byte("127.0.0.1 mine\n")},
		{Path: "/etc/ndklab-test/a:b,c\\d", Mode: 0o640, Content: []byte("odd")},
	}, Hosts: filepath.Join(dir, "there")})
	b, _ := started(t, Config{Lab: "l", Name: "b"})
	wantOutput(t, a, "cd "+dir+"; cat there alias; stat -c %a there", "node's\nnode's\n600\n")
	wantOutput(t, a, "cd "+dir+"/folder; ./new; cat kept; stat -c %a .; stat -c %a new", "run\nkept751\n755\n")
	wantOutput(t, a, "cd "+dir+"/folder/sub; cat kept new; stat -c %a .; stat -fc %T .", "sub kept\nsub\n710\noverlayfs\n")
	wantOutput(t, a, "cd "+dir+"/folder; od -An -tx1 deep/er/new; stat -c '%a %s' linked", " 00 01 ff\n444 0\n")
	wantOutput(t, a, "cat /etc/hosts; cat '/etc/ndklab-test/a:b,c\\d'; stat -c %a /etc/ndklab-test/*", "127.0.0.1 mine\nodd640\n")
	// Changes that a node makes there stay its own.
	wantOutput(t, a, "cd "+dir+"; echo more >>there; echo x >folder/written; rm folder/kept; cat there; ls folder", "node's\nmore\ndeep\nlinked\nnew\nsub\nwritten\n")
	wantOutput(t, b, "cd "+dir+"; cat there; ls folder; ls -d /etc/ndklab-test 2>/dev/null || echo none", "host'skept\nsub\nnone\n")
	if data, err := os.ReadFile(filepath.Join(dir, "there")); err != nil || string(data) != "host's" {
		t.Errorf("the host has %q, %v", data, err)
	}
	if _, err := os.Stat("/etc/ndklab-test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the host has /etc/ndklab-test: %v", err)
	}
	// Neither the memory nor its folder is left in sight.
	wantOutput(t, a, "test -d /sys/class/net && ! grep ' /sys tmpfs' /proc/self/mounts", "")
	if text := log.text(t); text != "" {
		t.Errorf("the agent says %q", text)
	}
}

// A folder that becomes an overlay keeps what is mounted below it.
func TestFilesBesideMounts(t *testing.T) {
	if os.Getenv(envUser) == "" {
		t.Skip("mounts where only this test sees them: TestOrdinaryUser does")
	}
	dir := t.TempDir()
	for _, sub := range []string{"", "/m", "/m/n", "/o p"} {
		if err := errors.Join(os.MkdirAll(dir+sub, 0o755), unix.Mount("test", dir+sub, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir+sub, unix.MNT_DETACH) })
		if err := os.WriteFile(dir+sub+"/f", []byte(sub+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := started(t, Config{Lab: "l", Name: "a", Files: []topology.File{{Path: dir + "/new", Mode: 0o644, Content: []byte("new\n")}}})
	wantOutput(t, a, "cd "+dir+"; cat f m/f m/n/f 'o p/f' new", "\n/m\n/m/n\n/o p\nnew\n")
	// Such a mount may become an overlay itself.
	c, _ := started(t, Config{Lab: "l", Name: "c", Files: []topology.File{
		{Path: dir + "/other", Mode: 0o644}, {Path: dir + "/m/n/new", Mode: 0o644, Content: []byte("new\n")},
	}})
	wantOutput(t, c, "cat "+dir+"/m/n/new", "new\n")
}

func TestFilesRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, want string }{
		{dir, "a folder on this machine"},
		{dir + "/file/below", "not a directory"},
		{"/ndklab-no-such/folder", "no folder on the path but /"},
		{"/dev/null", "no plain file on this machine"},
	} {
		a, _ := started(t, Config{Lab: "l", Name: "a", Files: []topology.File{{Path: test.path, Mode: 0o644, Content: []byte("x")}}})
		for range 2 { // it stays refused
			_, err := a.Exec(context.Background(), sh("true"))
			var kind *control.Error
			if !errors.As(err, &kind) || kind.Code != control.Unable || !strings.Contains(kind.Message, test.want) || !strings.Contains(kind.Message, "files: "+test.path+": ") {
				t.Errorf("%s: error %v, want one with %q", test.path, err, test.want)
			}
		}
	}
}

func TestHosts(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("10.1.2.3 some-node\nfd00::7 some-node\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(hostsFile)
	need.Check(t, err)
	a, log := started(t, Config{Lab: "l", Name: "a", Hosts: hosts})
	wantOutput(t, a, "getent ahosts some-node | cut -d' ' -f1 | sort -u", "10.1.2.3\nfd00::7\n")
	wantOutput(t, a, "echo x 2>/dev/null >>/etc/hosts || echo refused", "refused\n")
	// The lab may change the file for all nodes.
	if err := os.WriteFile(hosts, []byte("10.1.2.4 other-node\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, a, "cat /etc/hosts", "10.1.2.4 other-node\n")
	if after, err := os.ReadFile(hostsFile); err != nil || string(after) != string(before) {
		t.Errorf("the host has %q, %v; before %q", after, err, before)
	}
	// Without the file, commands run all the same.
	b, log2 := started(t, Config{Lab: "l", Name: "b", Hosts: hosts + "-not"})
	wantOutput(t, b, "echo runs", "runs\n")
	b.Kill()
	awaitDone(t, b)
	if text := log2.text(t); !strings.Contains(text, "the names of nodes do not resolve") {
		t.Errorf("the agent says %q", text)
	}
	if text := log.text(t); text != "" {
		t.Errorf("the agent says %q", text)
	}
}

func TestVariables(t *testing.T) {
	t.Setenv("NDKLAB_A", "supervisor")
	t.Setenv("LANG", "supervisor")
	t.Setenv("NDKLAB_SECRET", "supervisor")
	a, _ := started(t, Config{Lab: "l", Name: "a", Env: map[string]string{"NDKLAB_A": "node", "NDKLAB_C": "a=b c"}})
	file := filepath.Join(t.TempDir(), "out")
	status, err := a.Exec(t.Context(), sh("echo $NDKLAB_A $LANG $NDKLAB_C $NDKLAB_SECRET >"+file))
	out, readErr := os.ReadFile(file)
	if err := errors.Join(err, readErr); err != nil || status != 0 || string(out) != "node supervisor a=b c\n" {
		t.Errorf("a command without an environment: status %d, %v, output %q", status, err, out)
	}
	cmd := sh("env | grep NDKLAB_.= | sort")
	cmd.Env = append(os.Environ(), "NDKLAB_A=caller", "NDKLAB_B=caller", "NDKLAB_D=caller")
	if _, out, _ := run(t, a, cmd, ""); out != "NDKLAB_A=node\nNDKLAB_B=caller\nNDKLAB_C=a=b c\nNDKLAB_D=caller\n" {
		t.Errorf("a caller's command has %q", out)
	}
	// A command is looked up in the node's PATH.
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/ndklab-tool", []byte("#!/bin/sh\necho found"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, _ := started(t, Config{Lab: "l", Name: "b", Env: map[string]string{"PATH": dir}})
	if _, out, stderr := run(t, b, Command{Args: []string{"ndklab-tool"}}, ""); out != "found\n" {
		t.Errorf("output %q, %s", out, stderr)
	}
}

// BenchmarkMount measures the cost of the first command of a node besides the command:
// with the mounts that every node has, and with a file of its own.
func BenchmarkMount(b *testing.B) {
	hosts := filepath.Join(b.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("10.1.2.3 some-node\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	libraries := b.TempDir()
	if library, err := os.ReadFile(installedLibrary(b, verbs.Ibverbs)); err != nil {
		b.Fatal(err)
	} else if err := os.WriteFile(filepath.Join(libraries, verbs.Ibverbs), library, 0o755); err != nil {
		b.Fatal(err)
	}
	adapter := onLoopback()
	adapter.Libraries = libraries
	there, added := topology.File{Path: "/etc/hostname", Mode: 0o644, Content: []byte("x")}, topology.File{Path: "/etc/ndklab-test", Mode: 0o644}
	for _, bench := range []struct {
		name string
		cfg  Config
	}{
		{"nothing", Config{}},
		{"hosts", Config{Hosts: hosts}},
		{"hosts and a file", Config{Hosts: hosts, Files: []topology.File{there}}},
		{"hosts and an overlay", Config{Hosts: hosts, Files: []topology.File{added}}},
		{"adapter for programs", adapter},
	} {
		b.Run(bench.name, func(b *testing.B) {
			bench.cfg.Lab, bench.cfg.Name = "l", "a"
			for b.Loop() {
				b.StopTimer()
				a, err := Start(bench.cfg, nil, os.Stderr)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := a.Counters(b.Context()); err != nil { // it has started
					b.Fatal(err)
				}
				b.StartTimer()
				if err := a.Mount(b.Context()); err != nil {
					b.Error(err)
				}
				b.StopTimer()
				a.Kill()
				<-a.Done()
				b.StartTimer()
			}
		})
	}
}
