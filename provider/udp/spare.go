package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// This file is for a process that shares an adapter of another network namespace than
// its own. A socket is of the namespace that it was made in, whoever has it and binds
// it: so a process there makes all that a Carrier needs, and hands them over.

// spareSockets is the number of sockets that a Carrier opens at an address besides the one
// that receives: a routeSocket and the senders, in this order.
const spareSockets = 1 + sourcePorts

// Spare makes the sockets that a Carrier of these addresses needs besides those of a
// share, for Config.Spare of a Carrier in a process whose network namespace is another.
// They are of that of the calling thread, not bound yet, and the caller's to close.
func Spare(addresses []netip.Addr) ([]*os.File, error) {
	var files []*os.File
	for _, local := range addresses {
		for range spareSockets {
			fd, err := newSocket(local)
			if err != nil {
				for _, f := range files {
					err = errors.Join(err, f.Close())
				}
				return nil, fmt.Errorf("udp carrier: address %v: %w", local, err)
			}
			files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("%v, spare", local)))
		}
	}
	return files, nil
}

// newSocketOf returns a function that makes sockets in the network namespace of the calling thread.
func newSocketOf(local netip.Addr) func() (fd int, err error) {
	return func() (int, error) { return newSocket(local) }
}

// takeSpare returns a function that duplicates the sockets that were made for one address, one after the other.
func takeSpare(spare []*os.File) func() (fd int, err error) {
	return func() (int, error) {
		next := spare[0]
		spare = spare[1:]
		return duplicate(next)
	}
}
