package linkem

import (
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// A sender passes batches of due packets to the kernel.
type sender struct {
	messages [batchMessages]mmsghdr
	vectors  [batchMessages][2]unix.Iovec
	headers  [batchMessages][frame.MaxHeaders]byte
	ends     [batchMessages]int // how many runs there are up to the end of the message
}

// A batch ends with its first frame over this many bytes, so that the time
// after the system call is close to the time each of its frames was sent.
const (
	batchMessages = 32
	batchBytes    = 96 << 10
)

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

func newSender() *sender {
	s := new(sender)
	for i := range s.messages {
		s.messages[i].header.Iov = &s.vectors[i][0]
	}
	return s
}

// fill prepares the packets of n that are due as messages, successive runs of
// one frame as one, and returns how many messages that makes.
func (s *sender) fill(n *line, now time.Duration) (messages int) {
	n.queue.merge(now)
	size := 0
	due := n.queue.upcoming()
	for at := 0; at < len(due) && due[at].departs <= now && messages < batchMessages && size < batchBytes; messages++ {
		r := due[at]
		at++
		for at < len(due) && due[at].follows(&r) && due[at].departs <= now {
			r.count += due[at].count
			at++
		}
		s.ends[messages] = at
		size += s.message(messages, &r)
	}
	return messages
}

// message prepares message i and returns how long it is.
func (s *sender) message(i int, r *run) int {
	f, first, count := &r.held.frame, int(r.first), int(r.count)
	v := &s.vectors[i]
	if count == f.Segments() && !r.mark && !r.routed {
		whole := f.Bytes()
		v[0].Base = &whole[0]
		v[0].SetLen(len(whole))
		s.messages[i].header.Iovlen = 1
		return len(whole)
	}
	headers := f.AppendHeaders(s.headers[i][:0], first, count)
	if r.mark {
		frame.Mark(headers[frame.HeaderLen:])
	}
	payload := f.Payload(first, count)
	v[0].Base, v[1].Base = &headers[0], &payload[0]
	v[0].SetLen(len(headers))
	v[1].SetLen(len(payload))
	s.messages[i].header.Iovlen = 2
	return len(headers) + len(payload)
}

// send passes prepared messages to the kernel and returns how many it took, and
// why not the next one.
func (s *sender) send(fd, messages int) (sent int, errno unix.Errno) {
	for sent < messages {
		// Raw, because it does not block for long: no need to tell the scheduler.
		n, e := sendmmsg(fd, s.messages[sent:messages])
		switch e {
		case 0:
			sent += n
		case unix.EINTR:
		default:
			return sent, e
		}
	}
	return sent, 0
}

// sendmmsg sends messages without blocking and returns how many.
func sendmmsg(fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
