package lease

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// socketPair is a connection, and its other end for the owner to admit.
func socketPair(t *testing.T) (conn *net.UnixConn, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs = os.NewFile(uintptr(fds[0]), "theirs")
	mine := os.NewFile(uintptr(fds[1]), "mine")
	defer mine.Close()
	end, err := net.FileConn(mine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		theirs.Close()
		end.Close()
	})
	return end.(*net.UnixConn), theirs
}

// openedOver opens the device on a thread of another network namespace, over a
// connection that the owner admits.
func openedOver(t *testing.T, s *Server) (device *provider.Miniport, abandon func()) {
	t.Helper()
	conn, theirs := socketPair(t)
	if err := s.Admit(theirs); err != nil {
		t.Fatal(err)
	}
	type result struct {
		device  *provider.Miniport
		abandon func()
		err     error
	}
	opened := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var r result
		if r.err = unix.Unshare(unix.CLONE_NEWNET); r.err == nil {
			r.device, r.abandon, r.err = OpenOver(patient(t), conn)
		}
		opened <- r
	}()
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.device, r.abandon
}

// TestOutside: a device that was opened in another network namespace is in the owner's.
func TestOutside(t *testing.T) {
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			s := serving(t, config(1))
			device, _ := openedOver(t, s)
			t.Cleanup(device.Close)
			server, client := consuming(t, peer(t)), consuming(t, device)
			join(t, client, ours[i], server, listening(t, server, netip.AddrPortFrom(theirs[i], 0)))
			if sent := s.TransportCounters(patient(t))["packets_sent"]; sent == 0 {
				t.Error("the owner does not count what the process has sent")
			}
			for _, c := range s.Connections() {
				if !c.UserModeOwner {
					t.Errorf("connection %+v is not told to be a process's", c)
				}
			}
			if err := await.Disconnect(patient(t), client.conn); err != nil {
				t.Error(err)
			}
			<-server.disconnected
		})
	}
}

// TestAbandon: who is connected with a device that is abandoned learns it, and nothing is
// left of that, though nothing on it was closed.
func TestAbandon(t *testing.T) {
	s := serving(t, config(1))
	device, abandon := openedOver(t, s)
	client, err := newConsumer(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ready(); err != nil {
		t.Fatal(err)
	}
	server := consuming(t, peer(t))
	join(t, client, ours[0], server, listening(t, server, netip.AddrPortFrom(theirs[0], 0)))
	abandon()
	<-server.disconnected
	if !device.Failed() {
		t.Error("the device has not failed")
	}
	if err := await.Close(patient(t), server.conn); err != nil {
		t.Error(err)
	}
	server.conn = nil
	s.awaitShares(t, uint32(os.Getpid()))
	if left := s.ledger.Ports(); len(left) != 0 {
		t.Errorf("ports in use: %v", left)
	}
	abandon() // again
}

// TestAdmitRefused: what is no Unix socket, or comes too late, is told of.
func TestAdmitRefused(t *testing.T) {
	s := serving(t, config(1))
	l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ours[0], 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Admit(f); err == nil {
		t.Error("a UDP socket was admitted")
	}
	conn, theirs := socketPair(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Admit(theirs); err == nil {
		t.Error("a closed server admits")
	}
	theirs.Close()
	if _, _, err := OpenOver(context.Background(), conn); err == nil {
		t.Error("a device without an owner opens")
	}
}
