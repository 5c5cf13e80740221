package lab

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
	"golang.org/x/sys/unix"
)

// This file opens a node's adapter for a program outside the lab, at both ends of the lab's
// channel. The agent hands over sockets of the node's. An ordinary user's program of several
// threads cannot enter the node's namespaces (setns(2)).
//
// Sockets and memory do not cross hosts. In a lab over several hosts the program asks the part of the node's host itself, by
// a socket to which a path leads from that machine alone (localSocket).

type admitParams struct{ Node string }

// An admission says where a program gets the adapter.
type admission struct {
	Lab    string
	Host   string // the node's; "" of a lab on one machine, where the program has it by now
	Socket string // the path of one there
}

// OpenDevice opens the adapter of a node for this process, as lease.Open does for
// programs in the node. The device is to be closed, or abandoned, which does not wait for
// anything that is open on it (lease.OpenOver). It fails when the node goes down
// (Miniport.Fail), and its packets go on while the node is paused. In a lab over several hosts the node has to be on this
// machine.
func (n Nodes) OpenDevice(ctx context.Context, nodeName string) (device *provider.Miniport, abandon func(), err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open adapter of %s: %w", nodeName, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "device"), os.NewFile(uintptr(fds[1]), "device")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err == nil {
		err = n.admit(ctx, admitParams{nodeName}, theirs)
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

// admit has the agent of a node share its adapter with who has the other end of a socket.
func (n Nodes) admit(ctx context.Context, params admitParams, theirs *os.File) error {
	at, err := call(ctx, n.session, methodAdmit, params, theirs)
	if err != nil || at.Host == "" {
		return err
	}
	return at.enter(ctx, params, theirs)
}

// enter asks the part of the node's host.
func (at *admission) enter(ctx context.Context, params admitParams, theirs *os.File) error {
	sock, err := dialLocal(ctx, at.Socket)
	if err != nil {
		return control.Errorf(control.Unable, "node %s is at host %s, and a program has its adapter there alone (%v): run the program there by `ndklab exec %s/%[1]s -- PROGRAM`, or have the node on this machine by `host:`",
			params.Node, at.Host, err, at.Lab)
	}
	part := control.New(sock, nil)
	defer part.Close()
	_, err = methodAdmit.Call(ctx, part, params, theirs)
	return err
}

// admit answers methodAdmit.
func (a *nodeAPI) admit(ctx context.Context, r *control.Request, params admitParams) (admission, error) {
	l, err := a.host(params.Node)
	if err != nil {
		return admission{}, err
	}
	at, err := a.machines.admit(ctx, l, r.Files[0])
	at.Lab = a.lab
	return at, err
}

func (m *machine) admit(ctx context.Context, l *life, f *os.File) (admission, error) {
	return admission{}, l.client.ShareAdapter(ctx, f)
}

// admit asks the part of a node for its local socket.
func (h *head) admit(ctx context.Context, l *life, _ *os.File) (at admission, err error) {
	p := h.ofNode(l.Node)
	at.Host = p.Name
	if at.Socket, err = methodLocal.Call(ctx, p.Conn, nil); err != nil {
		return at, fmt.Errorf("host %s: %w", p.Name, err)
	}
	return at, nil
}

// A localSocket is the one at which a part gives programs of its machine the adapters of nodes. It is in memory of the part's, to
// which processes of the same user get by the root directory of the part in /proc. Its name is random: who finds it at the path is on that machine.
type localSocket struct {
	once sync.Once
	path string // as the host reaches it
	err  error
}

// localPath makes the local socket of a part when it is first asked for, and returns its path.
func (p *part) localPath() (string, error) {
	s := &p.local
	s.once.Do(func() { s.path, s.err = p.makeLocal() })
	return s.path, s.err
}

func (p *part) makeLocal() (string, error) {
	root, err := rootOf(p.nodes.hostProc)
	if err != nil {
		return "", err
	}
	name := filepath.Join(p.dir, "local-"+rand.Text())
	listener, err := inDirectory(name, func(short string) (*net.UnixListener, error) {
		return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: short})
	})
	if err != nil {
		return "", err
	}
	mux := new(control.Mux)
	methodAdmit.Handle(mux, func(ctx context.Context, r *control.Request, params admitParams) (admission, error) {
		l := p.life(params.Node)
		if l == nil {
			return admission{}, control.Errorf(control.Usage, "node %s is down", params.Node)
		}
		return p.machine.admit(ctx, l, r.Files[0])
	})
	go func() {
		for {
			sock, err := listener.AcceptUnix()
			if err != nil {
				log.Printf("local socket: %v", err)
				return
			}
			if uid, err := peerUID(sock); err != nil || uid != os.Getuid() {
				sock.Close()
				continue
			}
			control.New(sock, mux.Serve)
		}
	}()
	return filepath.Join(root, name), nil
}

// dialLocal connects to the local socket of a part, if it is on this machine.
func dialLocal(ctx context.Context, path string) (*net.UnixConn, error) {
	return inDirectory(path, func(short string) (*net.UnixConn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", short)
		if err != nil {
			return nil, err
		}
		return conn.(*net.UnixConn), nil // it is one
	})
}

// inDirectory calls do with a short path of a socket: an address has no room for some directories.
func inDirectory[T any](path string, do func(short string) (T, error)) (T, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		var none T
		return none, err
	}
	defer dir.Close()
	return do("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path))
}
