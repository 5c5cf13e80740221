//go:build cgo

package main

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// port is the device's one port, which is active while any of the interfaces that have the device's addresses has a
// carrier.
var port struct {
	mu       sync.Mutex   // guards what follows
	on       map[int]bool // the interfaces, by their index
	active   bool
	contexts map[*opened]struct{} // that changes are reported to
}

// startPort checks the interfaces, now and whenever the kernel reports that some have changed.
func startPort(indexes map[int]bool) error {
	port.on, port.contexts = indexes, map[*opened]struct{}{}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	changes := os.NewFile(uintptr(fd), "rtnetlink")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return errors.Join(os.NewSyscallError("bind", err), changes.Close())
	}
	if err := checkPort(); err != nil {
		return errors.Join(err, changes.Close())
	}
	go func() {
		defer changes.Close()
		message := make([]byte, 1<<16)
		for {
			// checkPort looks up what has changed: messages may have been lost (ENOBUFS, netlink(7)).
			if _, err := changes.Read(message); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			_ = checkPort() // if it fails, the port stays as it was
		}
	}()
	return nil
}

// checkPort checks whether the port is active, and reports to the contexts if that has changed.
func checkPort() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	port.mu.Lock()
	defer port.mu.Unlock()
	active := false
	for _, i := range interfaces {
		active = active || port.on[i.Index] && i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0
	}
	if active == port.active {
		return nil
	}
	port.active = active
	for o := range port.contexts {
		o.event(portEvent(active))
	}
	return nil
}

func portEvent(active bool) verbs.Event {
	if active {
		return verbs.Event{Type: verbs.EventPortActive}
	}
	return verbs.Event{Type: verbs.EventPortError}
}

func portActive() bool {
	port.mu.Lock()
	defer port.mu.Unlock()
	return port.active
}

// followPort has changes of the port reported to a context until stop is called.
func followPort(o *opened) (stop func()) {
	port.mu.Lock()
	defer port.mu.Unlock()
	port.contexts[o] = struct{}{}
	return func() {
		port.mu.Lock()
		defer port.mu.Unlock()
		delete(port.contexts, o)
	}
}
