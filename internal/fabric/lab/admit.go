package lab

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
	"golang.org/x/sys/unix"
)

// This file opens a node's adapter for a program outside the lab, at both ends of the lab's
// channel. The agent hands over sockets of the node's. An ordinary user's program of several
// threads cannot enter the node's namespaces (setns(2)).

type admitParams struct{ Node string }

// OpenDevice opens the adapter of a node for this process, as lease.Open does for
// programs in the node. The device is to be closed, or abandoned, which does not wait for
// anything that is open on it (lease.OpenOver). It fails when the node goes down
// (Miniport.Fail), and its packets go on while the node is paused.
func (n Nodes) OpenDevice(ctx context.Context, nodeName string) (device *provider.Miniport, abandon func(), err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open adapter of %s: %w", nodeName, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "device"), os.NewFile(uintptr(fds[1]), "device")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err == nil {
		err = n.whyEnded(methodAdmit.Call(ctx, n.conn, admitParams{nodeName}, theirs))
	}
	theirs.Close()
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, nil, err
	}
	return lease.OpenOver(ctx, conn.(*net.UnixConn)) // it is one half of a pair of such
}

// admit answers methodAdmit.
func (a *nodeAPI) admit(ctx context.Context, r *control.Request, params admitParams) error {
	if err := a.isAlone("a program outside with an adapter of a node"); err != nil {
		return err
	}
	l, err := a.host(params.Node)
	if err != nil {
		return err
	}
	return l.client.ShareAdapter(ctx, r.Files[0])
}
