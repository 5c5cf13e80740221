package udp

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// hold runs a process that holds a share. Descriptors 3 and 4 are the share's
// sockets. It sends every packet back to QP 17, until its standard input ends.
func hold() error {
	c, err := Open(Config{
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
		Sockets:   []*os.File{os.NewFile(3, "IPv4"), os.NewFile(4, "IPv6")},
	})
	if err != nil {
		return err
	}
	c.Listen(receiverFunc(func(batch []roce.Received) {
		for _, p := range batch {
			flow := roce.Flow{Local: p.Flow.Local, Remote: p.Flow.Remote, SourcePort: c.SourcePort(p.Flow.Local, 17)}
			reply := []roce.Packet{{Header: p.Header, Payload: [][]byte{p.Payload}}}
			if err := c.Send(flow, addressed(17, reply...)); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}))
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return c.Close()
}

// TestHolderDies has one process after another hold a share and be killed.
func TestHolderDies(t *testing.T) {
	owner := open(t, "127.0.0.1", "::1")
	arrived := newCollector()
	owner.Listen(arrived)
	packets := addressed(1<<18+5, writes(random(64<<10), 64<<10)...)
	for range 2 {
		sockets, err := owner.Share(1)
		if err != nil {
			t.Fatal(err)
		}
		holder := exec.Command("/proc/self/exe")
		holder.Env = append(os.Environ(), "UDP_TEST_HOLDER=1")
		holder.ExtraFiles = sockets
		holder.Stderr = os.Stderr
		if _, err := holder.StdinPipe(); err != nil { // closed when this process ends
			t.Fatal(err)
		}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		closeFiles(t, sockets)
		for i := range owner.Addresses() {
			mustSend(t, owner, flowBetween(owner, owner, i), packets)
			for j, p := range arrived.take(t, len(packets)) {
				if p.Header.PSN != packets[j].Header.PSN || p.Header.DestQPN != 17 {
					t.Fatalf("packet %d came back as %+v", j, p.Header)
				}
			}
		}
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = holder.Wait() // killed
		if err := owner.Reclaim(1); err != nil {
			t.Fatal(err)
		}
		flow := flowBetween(owner, owner, 0)
		mustSend(t, owner, flow, packets) // to nobody
		mustSend(t, owner, flow, []roce.Packet{acknowledgement(99)})
		if p := arrived.take(t, 1)[0]; p.Header.PSN != 99 {
			t.Errorf("packet %d, without a holder, reached the owner", p.Header.PSN)
		}
	}
}

// TestUnprivileged runs the tests of shares as a user without privileges: in a
// user namespace of its own, where the system lets it, else as a plain process on
// loopback.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || os.Getenv("UDP_TEST_UNPRIVILEGED") != "" {
		t.Skip("is unprivileged")
	}
	for _, namespace := range []string{"", "given"} {
		t.Run("namespace "+cmp.Or(namespace, "made"), func(t *testing.T) {
			runtime.LockOSThread() // Pdeathsig is of the thread
			defer runtime.UnlockOSThread()
			test := exec.Command("/proc/self/exe", "-test.run", "Share|Holder|Owner|Stranger|Senders", "-test.v")
			test.Dir = "/"
			test.Env = append(os.Environ(), "UDP_TEST_UNPRIVILEGED=1", "UDP_TEST_NAMESPACE="+namespace)
			test.SysProcAttr = &syscall.SysProcAttr{
				Credential: nobody.Credential(), Pdeathsig: unix.SIGKILL}
			out, err := test.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
