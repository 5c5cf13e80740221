package node

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

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"github.com/ndklab/ndklab/internal/node/verbs/ldcache"
)

const linkerCache = "/etc/ld.so.cache"

// installedLibrary returns the path at which the dynamic linker finds a library.
func installedLibrary(t testing.TB, name string) string {
	t.Helper()
	file, err := os.ReadFile(linkerCache)
	need.Check(t, err)
	cache, err := ldcache.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	paths := cache.Find(name)
	if len(paths) == 0 {
		need.Check(t, fmt.Errorf("%s is not installed", name))
	}
	return paths[0]
}

// standIns is a folder of libraries that stand for ndklab's: the system's, and something
// at their ends by which they are told apart.
func standIns(t *testing.T) string {
	t.Helper()
	library, err := os.ReadFile(installedLibrary(t, verbs.Ibverbs))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, verbs.Ibverbs), append(library, "stand-in"...), 0o755),
		os.WriteFile(filepath.Join(dir, verbs.Engine), []byte("engine"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startedFor starts a node with an adapter for RDMA programs.
func startedFor(t *testing.T, libraries string, variables map[string]string) (*Agent, *logFile) {
	t.Helper()
	cfg := onLoopback()
	cfg.Libraries, cfg.Env = libraries, variables
	a, log := started(t, cfg)
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a, log
}

func TestProgramsFindAdapter(t *testing.T) {
	libraries := standIns(t)
	ibverbs, rdmacm := installedLibrary(t, verbs.Ibverbs), installedLibrary(t, verbs.RDMACM)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir("/dev")
	if err != nil {
		t.Fatal(err)
	}
	a, log := startedFor(t, libraries, nil)
	wantOutput(t, a, "cmp "+ibverbs+" "+libraries+"/"+verbs.Ibverbs+" && tail -c 8 "+ibverbs, "stand-in")
	wantOutput(t, a, "ldd -r "+rdmacm+" 2>&1 | grep -c 'undefined symbol: dma_'", "5\n")
	wantOutput(t, a, "cd /sys/class; ls infiniband; cat infiniband_verbs/uverbs0/ibdev infiniband/ndk0/ports/1/gids/0", "ndk0\nndk0\n0000:0000:0000:0000:0000:ffff:0a00:0001\n")
	wantOutput(t, a, "ls /sys/class/net; cat /sys/class/net/lo/address /sys/class/infiniband/ndk0/device/net/lo/address", "lo\n00:00:00:00:00:00\n00:00:00:00:00:00\n")
	wantOutput(t, a, "stat -Lc %F /dev/infiniband/*; : <>/dev/infiniband/uverbs0 <>/dev/infiniband/rdma_cm; cat /dev/infiniband/"+verbs.Engine, "regular file\ncharacter special file\ncharacter special file\nengine")
	wantOutput(t, a, "cat /sys/class/misc/rdma_cm/abi_version; cd /sys/class/misc; for i in *; do test -e $i/dev || echo $i; done", "4\n")
	// The machine's own devices and classes are as they were.
	var names []string
	for _, entry := range before {
		if entry.Name() != "infiniband" {
			names = append(names, entry.Name())
		}
	}
	wantOutput(t, a, "ls -A /dev | grep -vx infiniband | grep -vx .ndklab | LC_ALL=C sort", strings.Join(slices.Sorted(slices.Values(names)), "\n")+"\n")
	wantOutput(t, a, "echo x >/dev/null; head -c 3 /dev/zero | wc -c; ls -d /dev/shm /dev/pts/ptmx", "3\n/dev/pts/ptmx\n/dev/shm\n")
	entries, err := os.ReadDir("/sys/class")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		wantOutput(t, a, "test -d /sys/class/"+entry.Name(), "")
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !bytes.Equal(after, mounts) {
		t.Errorf("the mounts of the machine have changed: %v\n%s\n%s", err, mounts, after)
	}
	if data, err := os.ReadFile(ibverbs); err != nil || bytes.HasSuffix(data, []byte("stand-in")) {
		t.Errorf("the machine has the stand-in: %v", err)
	}
	if text := log.text(t); text != "" {
		t.Errorf("the agent says %q", text)
	}
}

// Commands get terminals of their own as on the machine.
func TestProgramsTerminals(t *testing.T) {
	need.Check(t, need.Programs("script"))
	a, _ := startedFor(t, standIns(t), nil)
	_, out, stderr := run(t, a, Command{Args: []string{"script", "-qec", "test -t 0 && test -c $(tty) && echo fine", "/dev/null"}}, "")
	if out != "fine\r\n" {
		t.Errorf("output %q, %s", out, stderr)
	}
}

// Programs that nobody here wrote read the tree.
func TestProgramsListAdapter(t *testing.T) {
	a, _ := startedFor(t, standIns(t), nil)
	for _, test := range []struct{ program, want string }{
		{"ibstat", "CA 'ndk0'"},
		{"ibstat", "Link layer: Ethernet"},
		{"ibstatus", "100 Gb/sec (4X EDR)"},
	} {
		if _, err := exec.LookPath(test.program); err != nil {
			continue
		}
		status, out, stderr := run(t, a, Command{Args: []string{test.program}}, "")
		if status != 0 || !strings.Contains(out, test.want) {
			t.Errorf("%s: status %d, output %q, want %q; %s", test.program, status, out, test.want, stderr)
		}
	}
}

// Libraries in folders that a variable names are covered, the node's and a command's.
func TestProgramsOwnLibraries(t *testing.T) {
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
		for _, name := range []string{verbs.Ibverbs, verbs.RDMACM} {
			library, err := os.ReadFile(installedLibrary(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dirs[i], name), library, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dirs[i], "other"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, log := startedFor(t, standIns(t), map[string]string{"LD_LIBRARY_PATH": dirs[0]})
	const script = "tail -c 8 $1/libibverbs.so.1; grep -c . $1/librdmacm.so.1 >/dev/null; LD_LIBRARY_PATH= ldd -r $1/librdmacm.so.1 2>&1 | grep -c dma_resolve_route"
	if _, out, stderr := run(t, a, sh(script, dirs[0]), ""); out != "stand-in1\n" {
		t.Errorf("a node's folder: %q, %s", out, stderr)
	}
	b, _ := startedFor(t, standIns(t), nil)
	for range 2 { // the second time nothing is left to do
		cmd := sh(script, dirs[1])
		cmd.Env = append(slices.Clone(env), "LD_LIBRARY_PATH=relative::/no/such:"+dirs[1])
		if _, out, stderr := run(t, b, cmd, ""); out != "stand-in1\n" {
			t.Errorf("a command's folder: %q, %s", out, stderr)
		}
	}
	if text := log.text(t); text != "" {
		t.Errorf("the agent says %q", text)
	}
}

// Where nothing is installed the linker finds the library all the same.
func TestProgramsWithoutLibrary(t *testing.T) {
	if os.Getenv(envUser) == "" {
		t.Skip("mounts where only this test sees them: TestOrdinaryUser does")
	}
	libraries := standIns(t)
	program, err := exec.LookPath("ibv_devices")
	need.Check(t, err)
	file, err := os.ReadFile(linkerCache)
	if err != nil {
		t.Fatal(err)
	}
	without := filepath.Join(t.TempDir(), "cache")
	if err := errors.Join(
		os.WriteFile(without, bytes.ReplaceAll(file, []byte(verbs.Ibverbs+"\x00"), []byte("libibverbz.so.1\x00")), 0o644),
		unix.Mount(without, linkerCache, "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(linkerCache, unix.MNT_DETACH) })
	a, log := startedFor(t, libraries, nil)
	wantOutput(t, a, "ldd "+program+" | grep -c '=> "+libraries+"/libibverbs.so.1 '; ls >/dev/null", "1\n")
	if text := log.text(t); text != "" {
		t.Errorf("the agent says %q", text)
	}
}

// A librdmacm that cannot be copied is said, and commands run.
func TestProgramsRefused(t *testing.T) {
	dir := t.TempDir()
	library, err := os.ReadFile(installedLibrary(t, verbs.Ibverbs))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, verbs.RDMACM), library, 0o755); err != nil {
		t.Fatal(err)
	}
	a, log := startedFor(t, standIns(t), map[string]string{"LD_LIBRARY_PATH": dir})
	for range 2 { // it is said once
		wantOutput(t, a, "ls /sys/class/infiniband", "ndk0\n")
	}
	b, log2 := startedFor(t, "/no/such", nil)
	wantOutput(t, b, "echo runs", "runs\n")
	for _, agent := range []*Agent{a, b} {
		agent.Kill()
		awaitDone(t, agent)
	}
	if text := log.text(t); !strings.Contains(text, "RDMA programs do not find the adapter: "+dir+"/"+verbs.RDMACM+": ") || strings.Count(text, "\n") != 1 {
		t.Errorf("the agent says %q", text)
	}
	if text := log2.text(t); !strings.Contains(text, "mount /no/such/libibverbs.so.1 over ") || !strings.Contains(text, "no such file") {
		t.Errorf("the agent says %q", text)
	}
}

// A node whose programs are not to find the adapter is left alone.
func TestProgramsOff(t *testing.T) {
	a, log := startedFor(t, "", nil)
	wantOutput(t, a, "ls -d /sys/class/infiniband /dev/.ndklab 2>/dev/null; grep -c libibverbs /proc/self/mountinfo; true", "0\n")
	if text := log.text(t); text != "" {
		t.Errorf("the agent says %q", text)
	}
}
