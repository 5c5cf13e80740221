package control

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A file is a local end of a stream, for one direction. Only the goroutine that copies in
// that direction uses it, but for kick.
type file interface {
	// await waits until the file is ready as poll(2) says, or hung up or broken. It returns
	// false if kick was called, and may do so at any time. With no events it waits for the end
	// of the other side, where the file is one that this package has made.
	await(events int16) (ready bool, err error)
	// read and write are those of the kernel. They follow await, or do not wait at all.
	read(b []byte) (int, error)
	write(b []byte) (int, error)
	kick()
	// hungUp reports whether the other side has closed the file or cannot have it any more.
	hungUp() bool
	// isShut reports whether the other side, which has ended its writing, may still read.
	isShut() bool
	// resize sets the size of a terminal's window.
	resize(size uint32)
	// endWriting says that no more comes: it is what the other side reads.
	endWriting()
	close()
}

// errWouldBlock is that of a file with nothing to read, or without room.
const errWouldBlock = unix.EAGAIN

// adopt makes a file of a descriptor, which it takes over.
func adopt(fd int) (file, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	var stat unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	d := descriptor{f: os.NewFile(uintptr(fd), "stream"), fd: fd, socket: stat.Mode&unix.S_IFMT == unix.S_IFSOCK}
	if regular := stat.Mode&unix.S_IFMT == unix.S_IFREG; !regular && flags&unix.O_NONBLOCK != 0 {
		raw, err := d.f.SyscallConn()
		return &polled{d, raw}, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		d.close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &shared{d, os.NewFile(uintptr(wake), "wake"), wake, make(chan struct{}, 1)}, nil
}

// adoptCopy is adopt for a descriptor that stays the caller's.
func adoptCopy(fd int) (file, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return adopt(fd)
}

// A lostFile takes the place of a file that could not be made: it is at its end, and nobody
// reads it.
type lostFile struct{}

func (lostFile) await(int16) (bool, error)   { return true, nil }
func (lostFile) read([]byte) (int, error)    { return 0, nil }
func (lostFile) write(b []byte) (int, error) { return 0, unix.EPIPE }
func (lostFile) kick()                       {}
func (lostFile) hungUp() bool                { return true }
func (lostFile) isShut() bool                { return false }
func (lostFile) resize(uint32)               {}
func (lostFile) endWriting()                 {}
func (lostFile) close()                      {}

// A descriptor has the part that both kinds of files share.
type descriptor struct {
	f      *os.File
	fd     int // of f
	socket bool
}

func (d *descriptor) read(b []byte) (int, error)  { return retry(unix.Read, d.fd, b) }
func (d *descriptor) write(b []byte) (int, error) { return retry(unix.Write, d.fd, b) }
func (d *descriptor) close()                      { d.f.Close() }

func (d *descriptor) endWriting() {
	if d.socket {
		_ = unix.Shutdown(d.fd, unix.SHUT_WR) // of one that is over already there is nothing to end
	}
}

func (d *descriptor) hungUp() bool { return pollNow(d.fd, 0) != 0 }

func (d *descriptor) isShut() bool { return d.socket && !d.hungUp() }

func retry(do func(int, []byte) (int, error), fd int, b []byte) (n int, err error) {
	for {
		if n, err = do(fd, b); !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// pollNow reports which events there are now.
func pollNow(fd int, events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds, 0); !errors.Is(err, unix.EINTR) {
			return fds[0].Revents
		}
	}
}

// A polled file is in non-blocking mode, and the runtime waits for it without a thread.
type polled struct {
	descriptor
	raw syscall.RawConn
}

// Deadlines that are over, and that never are.
var past, noDeadline = time.Unix(1, 0), time.Time{}

func (p *polled) await(events int16) (ready bool, err error) {
	look := func(uintptr) bool {
		ready = pollNow(p.fd, events) != 0
		return ready
	}
	wait, again := p.raw.Read, p.f.SetReadDeadline
	if events == unix.POLLOUT {
		wait, again = p.raw.Write, p.f.SetWriteDeadline
	}
	if err = wait(look); errors.Is(err, os.ErrDeadlineExceeded) {
		return false, again(noDeadline)
	}
	return ready, err
}

// kick fails only for a file that is closed, for which nobody waits.
func (p *polled) kick() { _ = p.f.SetDeadline(past) }

// A shared file is in blocking mode, and must stay so, because others have it, too: a shell
// its terminal, for example. A thread waits for it.
type shared struct {
	descriptor
	wake   *os.File // an eventfd
	wakeFD int
	kicked chan struct{}
}

// mostAtOnce is PIPE_BUF: a pipe takes so much without blocking if poll says that it is writable.
const mostAtOnce = 4096

func (s *shared) write(b []byte) (int, error) { return s.descriptor.write(b[:min(len(b), mostAtOnce)]) }

func (s *shared) await(events int16) (bool, error) {
	if events == 0 { // it takes no thread to wait for what is not to be waited for
		<-s.kicked
		return false, nil
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}, {Fd: int32(s.wakeFD), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
		return false, err
	}
	if fds[1].Revents != 0 {
		var count [8]byte
		_, _ = retry(unix.Read, s.wakeFD, count[:]) // of what poll has found
		return false, nil
	}
	return fds[0].Revents != 0, nil
}

func (s *shared) kick() {
	select {
	case s.kicked <- struct{}{}:
	default:
	}
	_, _ = s.wake.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails when nobody waits any more
}

func (s *shared) close() {
	s.descriptor.close()
	s.wake.Close()
}
