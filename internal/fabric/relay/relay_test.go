package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/leak"
)

// The tests run in a network namespace of their own.
func TestMain(m *testing.M) {
	if os.Getenv("NDKLAB_TEST_PROGRAM") == "tests" {
		leak.Main(m)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "NDKLAB_TEST_PROGRAM=tests")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A side is one end of a veth pair with its relay.
type side struct {
	*Relay
	name, dir string
}

// pair is both, on a veth pair of MTU 1500 that nothing else speaks on.
func pair(t *testing.T) [2]side {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(veth); err != nil {
			t.Error(err)
		}
	})
	var sides [2]side
	for i, name := range []string{"a", "b"} {
		if err := netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			t.Fatal(err)
		}
		namespace, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		defer namespace.Close()
		dir := t.TempDir()
		directory, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		packets, err := OpenInterface(namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Open(name, packets, directory)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		sides[i] = side{r, name, dir}
	}
	for _, s := range sides {
		eventually(t, func() string { return down(t, s.name) })
	}
	return sides
}

// down says if an interface carries nothing. Asking has the kernel take note of a
// new carrier: what is sent before that it drops.
func down(t *testing.T, name string) string {
	t.Helper()
	device, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if device.Attrs().OperState != netlink.OperUp {
		return name + " is not up"
	}
	return ""
}

// eventually waits until ok returns "".
func eventually(t *testing.T, ok func() (missing string)) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		missing := ok()
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(missing)
		}
	}
}

// peer makes a side's peer socket.
func (s side) peer(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(s.dir, PeerSocket(s.name))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// send gives the side frames.
func (s side) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	conn, err := net.Dial("unixgram", filepath.Join(s.dir, Socket(s.name)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, f := range frames {
		if _, err := conn.Write(f); err != nil {
			t.Fatal(err)
		}
	}
}

// counted waits until a side has counted what it must.
func (s side) counted(t *testing.T, want Counts) {
	t.Helper()
	eventually(t, func() string {
		got, err := s.Counts()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Sprintf("side %s (-want +got):\n%s", s.name, diff)
		}
		return ""
	})
}

// numbered is a frame of so many bytes, with its number, of an Ethernet type for experiments.
func numbered(number uint32, size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	binary.BigEndian.PutUint32(f[14:], number)
	return f
}

func receive(t *testing.T, conn *net.UnixConn) []byte {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// Frames cross in both directions, as they are and in order.
func TestFramesCross(t *testing.T) {
	sides := pair(t)
	for from := range 2 {
		peer := sides[1-from].peer(t)
		for i := range uint32(100) {
			want := numbered(i, 18+int(i*1496/99)) // up to the MTU
			sides[from].send(t, want)
			if got := receive(t, peer); !bytes.Equal(got, want) {
				t.Fatalf("frame %d from %s: %d bytes, want %d", i, sides[from].name, len(got), len(want))
			}
		}
	}
	for _, s := range sides {
		s.counted(t, Counts{ToPeer: 100, FromPeer: 100})
	}
}

// A peer that attaches later, or anew, gets the frames from then on.
func TestPeersComeAndGo(t *testing.T) {
	sides := pair(t)
	want := Counts{}
	for i := range uint32(3) {
		sides[0].send(t, numbered(i, 60))
		want.NoPeer++ // there was none so far, or it has gone and left its file
		sides[1].counted(t, want)
		peer := sides[1].peer(t)
		sides[0].send(t, numbered(100+i, 60))
		if got := receive(t, peer); !bytes.Equal(got, numbered(100+i, 60)) {
			t.Errorf("got frame %x", got)
		}
		want.ToPeer++
		sides[1].counted(t, want)
		peer.Close() // which leaves the file, as a killed process does
	}
}

// A peer that does not read loses frames, and no more than that.
func TestPeerThatDoesNotRead(t *testing.T) {
	sides := pair(t)
	peer := sides[1].peer(t)
	queue := queueLen(t)
	for i := range queue + 1 {
		sides[0].send(t, numbered(uint32(i), 60))
	}
	sides[1].counted(t, Counts{ToPeer: queue, Lost: 1})
	for range queue {
		receive(t, peer)
	}
	sides[0].send(t, numbered(1000, 60))
	if got := receive(t, peer); !bytes.Equal(got, numbered(1000, 60)) {
		t.Errorf("got frame %x", got)
	}
}

// queueLen returns the number of frames that the kernel queues for a peer.
func queueLen(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/unix/max_dgram_qlen")
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		t.Fatal(err)
	}
	return n + 1 // the kernel compares with >
}

// Signals while a frame waits for the peer do not lose it.
func TestSignals(t *testing.T) {
	usual := sendTimeout
	sendTimeout = time.Minute // we may be held up until we receive
	t.Cleanup(func() { sendTimeout = usual })
	sides := pair(t)
	peer := sides[1].peer(t)
	queue := queueLen(t)
	for i := range queue + 1 {
		sides[0].send(t, numbered(uint32(i), 60))
	}
	sides[1].counted(t, Counts{ToPeer: queue})
	sending := fmt.Sprintf("%d 0x%x ", unix.SYS_SENDTO, sides[1].out)
	eventually(t, func() string { // and one waits
		calls, err := filepath.Glob("/proc/self/task/*/syscall")
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			if text, err := os.ReadFile(call); err == nil && strings.HasPrefix(string(text), sending) {
				return ""
			}
		}
		return "no thread waits for the peer"
	})
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				t.Fatal(err)
			}
			// One that has ended meanwhile needs none.
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
		}
		runtime.Gosched()
	}
	for range queue + 1 {
		receive(t, peer)
	}
	sides[1].counted(t, Counts{ToPeer: queue + 1})
}

// Frames that the interface cannot send are counted: too short, too long, or without
// carrier.
func TestFramesThatCannotBeSent(t *testing.T) {
	sides := pair(t)
	sides[0].send(t, nil, numbered(0, 18)[:13], numbered(0, 1515), make([]byte, 70000), numbered(0, 1514))
	sides[0].counted(t, Counts{FromPeer: 1, Lost: 4})
	if err := netlink.LinkSetDown(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	sides[0].send(t, numbered(1, 60))
	sides[0].counted(t, Counts{FromPeer: 1, Lost: 5})
	if err := netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return down(t, "a") + down(t, "b") })
	peer := sides[1].peer(t)
	sides[0].send(t, numbered(2, 60))
	if got := receive(t, peer); !bytes.Equal(got, numbered(2, 60)) {
		t.Errorf("got frame %x", got)
	}
}

func TestOpenFails(t *testing.T) {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	directory, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if _, err := OpenInterface(namespace, "missing"); err == nil {
		t.Error("an interface that is not there was opened")
	}
	if err := netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo"}}); err != nil {
		t.Fatal(err)
	}
	var packets [2]*os.File
	for i := range packets {
		if packets[i], err = OpenInterface(namespace, "lo"); err != nil {
			t.Fatal(err)
		}
	}
	defer packets[1].Close()
	first, err := Open("lo", packets[0], directory)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := Open("lo", packets[1], directory); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second relay of an interface: %v", err)
	}
}
