package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider/lease"
)

// This file finds out whether a server listens. The kernel notifies nobody of that, so
// the agent polls the sockets of the server's processes and the listeners of the adapter.

// methodListening waits until a command listens, or has ended, and returns whether it does.
var methodListening = control.NewMethod[listeningParams, bool]("listening")

type listeningParams struct {
	ID   string
	Port uint16 // 0: any
}

// lookInterval is the polling interval: short beside the start of a program, long beside a
// poll.
const lookInterval = 5 * time.Millisecond

// Listening waits until the command that Exec runs under id listens, or a process that it
// has started, at a port of TCP or of RDMA; port 0 is any. The error is ErrNotListening if
// the command ends before.
func (c *Client) Listening(ctx context.Context, id string, port uint16) error {
	listens, err := c.listens(ctx, listeningParams{id, port})
	if err == nil && !listens {
		err = ErrNotListening
	}
	return c.named(err)
}

// listens waits likewise, and reports whether the command listens.
func (c *Client) listens(ctx context.Context, params listeningParams) (bool, error) {
	if err := c.commands.awaitStarted(ctx, params.ID); err != nil {
		return false, err
	}
	return methodListening.Call(ctx, c.conn, params)
}

// ErrNotListening says that a command has ended and never listened.
var ErrNotListening = errors.New("the command has ended, and did not listen")

// listening answers Agent.Listening.
func (a *agent) listening(ctx context.Context, _ *control.Request, params listeningParams) (bool, error) {
	a.mu.Lock()
	p, shared := a.commands[params.ID], a.shared
	a.mu.Unlock()
	if p == nil {
		return false, nil
	}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		listens, err := p.listens(shared, params.Port)
		if listens || err != nil {
			return listens, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-p.done:
			return false, nil
		case <-look.C:
		}
	}
}

// listens reports whether the process, or one of its group or below it, listens. shared is
// nil in a node without an adapter.
func (p *process) listens(shared *lease.Server, port uint16) (bool, error) {
	family, err := p.family()
	if err != nil {
		return false, err
	}
	if shared != nil {
		for _, e := range shared.LocalEndpoints() {
			if e.Listener && (port == 0 || e.Local.Port() == port) && slices.Contains(family, int(e.OwnerPID)) {
				return true, nil
			}
		}
	}
	sockets, err := listeningSockets(port)
	if err != nil || len(sockets) == 0 {
		return false, err
	}
	for _, pid := range family {
		if holdsAny(pid, sockets) {
			return true, nil
		}
	}
	return false, nil
}

// family returns the ids of the process, of those in the group that it leads, and of those that
// any of them has started and that have not outlived it.
func (p *process) family() ([]int, error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	family := []int{p.pid}
	for _, e := range processes {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == p.pid {
			continue
		}
		parent, group, err := parentAndGroup(pid)
		switch {
		case err != nil: // it has ended
		case group == p.pid:
			family = append(family, pid)
		default:
			children[parent] = append(children[parent], pid)
		}
	}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// parentAndGroup reads /proc/PID/stat (man 5 proc). The name in parentheses before them may
// have any character.
func parentAndGroup(pid int) (parent, group int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	var state string
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent, &group)
	return parent, group, err
}

// listeningSockets returns the inodes of the TCP sockets of the node that listen at a port,
// or at any for 0.
func listeningSockets(port uint16) (map[string]bool, error) {
	const ( // fields of a line of /proc/net/tcp (man 5 proc)
		local     = 1
		state     = 3
		inode     = 9
		listening = "0A" // TCP_LISTEN of the kernel's net/tcp_states.h
	)
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) <= inode || fields[state] != listening {
				continue
			}
			_, hex, _ := strings.Cut(fields[local], ":")
			if at, err := strconv.ParseUint(hex, 16, 16); err == nil && (port == 0 || uint16(at) == port) {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
	}
	return sockets, nil
}

// holdsAny reports whether a process has one of the sockets open.
func holdsAny(pid int, sockets map[string]bool) bool {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(folder)
	if err != nil {
		return false // it has ended
	}
	buf := make([]byte, 64)
	for _, fd := range fds {
		n, err := unix.Readlink(folder+"/"+fd.Name(), buf)
		if err == nil && sockets[string(buf[:n])] {
			return true
		}
	}
	return false
}
