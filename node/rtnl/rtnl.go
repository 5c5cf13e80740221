// Package rtnl asks the kernel's rtnetlink for many things at once: a Batch of
// requests goes out in one system call, and of those that are done without a word
// only the last is acknowledged. A lab of thousands of nodes makes tens of thousands
// of requests, each of which would otherwise take three system calls.
//
// What a request says, package nl of github.com/vishvananda/netlink writes. The
// package knows nothing of nodes or links.
//
// Start reading at Batch, then Socket.Do.
package rtnl

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Batch is requests in the order in which the kernel is to do them. Its zero value
// is empty.
type Batch struct {
	requests []request
}

type request struct {
	what string
	*nl.NetlinkRequest
}

// Add adds a request that has data, for instance of kind RTM_NEWLINK; what says in an
// error what it was for. NLM_F_REQUEST and NLM_F_ACK need not be in flags.
func (b *Batch) Add(what string, kind, flags int, data ...nl.NetlinkRequestData) {
	b.requests = append(b.requests, request{what, &nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Type: uint16(kind), Flags: uint16(flags) | unix.NLM_F_REQUEST},
		Data:     data,
	}})
}

// Len is how many requests there are.
func (b *Batch) Len() int { return len(b.requests) }

// A Socket is a channel to rtnetlink of one network namespace, whichever its user is
// in. It is not for use by several goroutines at once.
type Socket struct {
	fd       int
	sequence uint32
	sends    int    // for a test
	answer   []byte // of the kernel; nil before the first
}

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", os.NewSyscallError("socket", err))
	}
	return &Socket{fd: fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() { unix.Close(s.fd) }

const (
	// sendLimit is how many bytes go out at once, unless a single request is longer: the kernel copies
	// them into one piece of memory.
	sendLimit = 32 << 10
	// answerLimit is the longest answer, bytes: of an interface with all that the
	// kernel tells of one, several times over.
	answerLimit = 64 << 10
)

// Do has the kernel do all requests of a batch, one after the other, also those
// behind one that fails. The error is that of the first that failed. answers are what
// requests asked for, by their number in the batch: messages without headers. A request
// for a dump cannot be in a batch.
func (s *Socket) Do(b *Batch) (answers [][]byte, err error) {
	answers = make([][]byte, len(b.requests))
	for first := 0; first < len(b.requests); {
		out, n := s.write(b.requests[first:])
		s.sends++
		if err := unix.Sendto(s.fd, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("netlink: %w", os.NewSyscallError("sendto", err))
		}
		failed, e := s.read(answers[first : first+n])
		switch {
		case failed >= 0:
			e = fmt.Errorf("%s: %w", b.requests[first+failed].what, e)
		case e != nil:
			return nil, e
		}
		err = cmp.Or(err, e)
		first += n
	}
	return answers, err
}

// write is as many of the requests as go out at once, and how many these are. They
// are numbered from s.sequence on.
func (s *Socket) write(requests []request) (out []byte, n int) {
	last := 0 // where the last of them begins
	for _, r := range requests {
		r.Seq = s.sequence + uint32(n)
		message := r.Serialize()
		if n > 0 && len(out)+len(message) > sendLimit {
			break
		}
		last = len(out)
		out = append(out, message...)
		for len(out)%unix.NLMSG_ALIGNTO != 0 {
			out = append(out, 0)
		}
		n++
	}
	flags := out[last+6:] // of struct nlmsghdr
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	return out, n
}

// read reads what the kernel says to as many requests as there are answers, which it
// has done by now. failed is the number of the first that failed with err; -1 if none
// did, or if reading did.
func (s *Socket) read(answers [][]byte) (failed int, err error) {
	failed = -1
	base := s.sequence
	s.sequence += uint32(len(answers))
	if s.answer == nil {
		s.answer = make([]byte, answerLimit)
	}
	for {
		n, _, err2 := unix.Recvfrom(s.fd, s.answer, 0)
		if err2 == unix.EINTR {
			continue
		}
		if err2 != nil {
			return -1, fmt.Errorf("netlink: %w", os.NewSyscallError("recvfrom", err2))
		}
		messages, err2 := syscall.ParseNetlinkMessage(s.answer[:n])
		if err2 != nil {
			return -1, fmt.Errorf("netlink: answer: %w", err2)
		}
		for _, m := range messages {
			i := int(m.Header.Seq - base)
			switch {
			case i < 0 || i >= len(answers): // to a batch whose answers were not read to the end
			case m.Header.Type != unix.NLMSG_ERROR:
				answers[i] = bytes.Clone(m.Data)
			default:
				if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 && failed < 0 {
					failed, err = i, unix.Errno(errno)
				}
				if i == len(answers)-1 {
					return failed, err
				}
			}
		}
	}
}
