// Package rtnl sends rtnetlink requests in batches: a Batch goes out in one system call, and
// of those requests that have no answer only the last is acknowledged. A lab of thousands of nodes makes tens of thousands
// of requests, each of which would otherwise take three system calls.
//
// Package nl of github.com/vishvananda/netlink writes the requests. The package knows nothing
// of nodes or links.
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

// Add adds a request that has data, for instance of kind RTM_NEWLINK; what names it in
// an error. NLM_F_REQUEST and NLM_F_ACK need not be in flags.
func (b *Batch) Add(what string, kind, flags int, data ...nl.NetlinkRequestData) {
	b.requests = append(b.requests, request{what, &nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Type: uint16(kind), Flags: uint16(flags) | unix.NLM_F_REQUEST},
		Data:     data,
	}})
}

// Len returns how many requests there are.
func (b *Batch) Len() int { return len(b.requests) }

// An Error is the failure of a request.
type Error struct {
	Request int    // its number in the batch
	What    string // it was for
	Err     error  // the kernel's
}

func (e *Error) Error() string { return e.What + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

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
	// atOnce bounds the number of requests that go out at once. The kernel's answers to
	// all of them have to fit in the socket's receive buffer, of 208 KiB, where an answer
	// about an interface may take 4.
	atOnce = 40
	// answerLimit is the longest answer, bytes: of an interface with all that the
	// kernel tells of one, several times over.
	answerLimit = 64 << 10
)

// Do has the kernel do all requests of a batch, one after the other, also those
// behind one that fails. The error is an *Error for the first that failed, unless the
// kernel could not be asked. answers are what
// requests asked for, by their number in the batch: messages without headers. A request
// for a dump cannot be in a batch.
func (s *Socket) Do(b *Batch) (answers [][]byte, err error) {
	answers = make([][]byte, len(b.requests))
	for first := 0; first < len(b.requests); {
		requests := b.requests[first:min(first+atOnce, len(b.requests))]
		out := s.write(requests)
		s.sends++
		if err := unix.Sendto(s.fd, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("netlink: %w", os.NewSyscallError("sendto", err))
		}
		failed, e := s.read(answers[first : first+len(requests)])
		switch {
		case failed >= 0:
			e = &Error{first + failed, b.requests[first+failed].what, e}
		case e != nil:
			return nil, e
		}
		err = cmp.Or(err, e)
		first += len(requests)
	}
	return answers, err
}

// write returns the requests as they go out, numbered from s.sequence on. The last is to be
// acknowledged.
func (s *Socket) write(requests []request) (out []byte) {
	for i, r := range requests {
		r.Seq = s.sequence + uint32(i)
		if i == len(requests)-1 {
			r.Flags |= unix.NLM_F_ACK
		}
		out = append(out, r.Serialize()...)
		for len(out)%unix.NLMSG_ALIGNTO != 0 {
			out = append(out, 0)
		}
	}
	return out
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

// SkipStatistics returns the attribute of RTM_GETLINK that leaves the counters of an interface
// out (RTEXT_FILTER_SKIP_STATS in linux/rtnetlink.h).
func SkipStatistics() *nl.RtAttr {
	const skip = 1 << 3
	return nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skip))
}
