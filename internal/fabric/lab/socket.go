package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// bind makes the lab's API socket. It is bound by the command, not by the
// supervisor, because its name has to be in the command's network namespace; the
// name vanishes when the last process that inherited the socket ends.
func (p place) bind() (*os.File, error) {
	listener, err := net.ListenUnix("unix", p.socket())
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, control.Errorf(control.Usage, "lab %s is already up: `ndklab down %s` takes it down", p.name, p.name)
	}
	if err != nil {
		return nil, fmt.Errorf("API socket: %w", err)
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return nil, fmt.Errorf("API socket: %w", err)
	}
	return file, nil
}

// dial connects to the lab's API socket. Any user may take a name in the
// abstract namespace, so who listens is checked: the kernel tells who bound
// the socket.
func (p place) dial(ctx context.Context) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.socket().Name)
	if err != nil {
		return nil, err
	}
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("%s is no Unix socket", p.socket())
	}
	if uid, err := peerUID(sock); err != nil || uid != os.Geteuid() {
		sock.Close()
		return nil, control.Errorf(control.Failed, "socket %s belongs to another user (%d)", p.socket().Name, uid)
	}
	return sock, nil
}

// heard lists the labs of the caller that listen in this network namespace, which they
// do also when somebody has removed their state files.
func heard() ([]string, error) {
	sockets, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return nil, fmt.Errorf("API sockets: %w", err)
	}
	var names []string
	prefix := " " + place{}.socket().Name
	for line := range strings.Lines(string(sockets)) {
		if _, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), prefix); ok && CheckName(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// peerUID is the user at the other end of a socket, as this user namespace
// knows it: whoever is not mapped into it is the overflow user, 65534.
func peerUID(sock *net.UnixConn) (int, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return -1, err
	}
	if credErr != nil {
		return -1, credErr
	}
	return int(cred.Uid), nil
}
