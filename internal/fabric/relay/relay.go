// Package relay gives a process that may not open an interface the Ethernet
// frames of one, over Unix datagram sockets: each datagram is one frame, from its
// Ethernet header on, without check sequence. QEMU uses that format with -netdev dgram.
//
// A directory holds two sockets for interface NAME. The relay receives on
// NAME.lab what is to be sent through the interface. It sends what arrives at the
// interface to NAME.peer, which the process makes. Nothing is agreed beforehand:
// frames for which there is no NAME.peer are dropped, as on a cable that is not
// plugged in, and a process that ends may be followed by another that makes
// NAME.peer anew.
//
// The relay takes frames as the kernel has them. A caller that wants them as on a wire
// makes sure that segmentation and checksums are done by the time that they reach the
// interface (package link does, for such ends).
package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// Socket is the name, in the relay's directory, of the socket that takes frames
// for an interface.
func Socket(iface string) string { return iface + ".lab" }

// PeerSocket is the name of the socket that gets the interface's frames.
func PeerSocket(iface string) string { return iface + ".peer" }

const (
	// maxFrame is the length of the longest frame: an IP packet of 65535 bytes.
	maxFrame    = ethernetLen + 65535
	ethernetLen = 14

	// receiveBuffer is the size to ask for, bytes: a peer may be slow for a while.
	// Without privilege the kernel grants less.
	receiveBuffer = 4 << 20
)

// sendTimeout bounds the time that a peer, such as an emulated machine that gets no
// processor, may take to make room for a frame. The kernel queues some ten
// (net.unix.max_dgram_qlen), and those that come meanwhile wait in the
// interface's receive buffer. Tests change it.
var sendTimeout = 2 * time.Second

// Counts are of frames since the relay was opened.
type Counts struct {
	ToPeer   uint64 `json:"to_peer"`   // that it has taken, or may still
	FromPeer uint64 `json:"from_peer"` // that went into the interface
	NoPeer   uint64 `json:"no_peer"`   // dropped because there was nobody to take them
	Lost     uint64 `json:"lost"`      // in either direction: a peer too slow, a frame too long, an interface that was down
}

// A Relay connects one interface and its peer. Its methods may be called from
// any goroutine.
type Relay struct {
	iface  *os.File // packet socket
	socket *os.File // NAME.lab
	out    int      // an unnamed socket for sending to the peer: unlike the others, it blocks
	peer   unix.SockaddrUnix
	// directory is the folder of the sockets, kept open because peer has its descriptor.
	directory *os.File

	running sync.WaitGroup

	toPeer, fromPeer, noPeer, lost atomic.Uint64
}

// Open makes the socket of an interface, of which there is a packet socket (OpenInterface), in a directory, and relays until
// Close. The files are the Relay's from then on, unless Open fails.
func Open(iface string, packets, directory *os.File) (*Relay, error) {
	r := &Relay{out: -1}
	if err := r.open(iface, directory); err != nil {
		r.Close()
		return nil, fmt.Errorf("relay of %s: %w", iface, err)
	}
	r.iface, r.directory = packets, directory
	r.running.Go(r.sendToPeer)
	r.running.Go(r.sendToInterface)
	return r, nil
}

func (r *Relay) open(iface string, directory *os.File) error {
	// A path through the descriptor leads to the directory also if something else is mounted
	// over it, and the address is short.
	base := fmt.Sprintf("/proc/self/fd/%d/", directory.Fd())
	r.peer.Name = base + PeerSocket(iface)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	r.socket = os.NewFile(uintptr(fd), Socket(iface))
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: base + Socket(iface)}); err != nil {
		return fmt.Errorf("socket %s: %w", Socket(iface), err)
	}
	if r.out, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	limit := unix.NsecToTimeval(int64(sendTimeout))
	if err := unix.SetsockoptTimeval(r.out, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return fmt.Errorf("SO_SNDTIMEO: %w", err)
	}
	return nil
}

// OpenInterface opens a packet socket for what enters an interface of a
// namespace. The socket stays there. The process that relays may be another, which gets into no namespace.
func OpenInterface(namespace *os.File, iface string) (*os.File, error) {
	var file *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			var fd int
			if fd, err = frame.OpenPlain(iface, receiveBuffer); err == nil {
				file = os.NewFile(uintptr(fd), iface)
			}
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("relay of %s: %w", iface, err)
	}
	return file, nil
}

// Close ends the relay. The sockets' files stay for the owner of the directory
// to remove.
func (r *Relay) Close() {
	for _, file := range []*os.File{r.iface, r.socket} {
		if file != nil {
			file.Close()
		}
	}
	r.running.Wait()
	if r.directory != nil {
		r.directory.Close()
	}
	if r.out >= 0 {
		unix.Close(r.out)
	}
}

// sendToPeer sends what enters the interface to the peer.
func (r *Relay) sendToPeer() {
	buffer := make([]byte, maxFrame)
	for {
		n, err := r.iface.Read(buffer)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil: // the interface went down; the socket remains
			continue
		}
		switch err := r.sendFrame(buffer[:n]); {
		case err == nil:
			r.toPeer.Add(1)
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
			r.noPeer.Add(1)
		default:
			r.lost.Add(1)
		}
	}
}

// sendFrame sends a frame to the peer. Where sending has a time limit, signals end it
// even if they have system calls go on (signal(7)); Go's runtime sends itself some.
func (r *Relay) sendFrame(frame []byte) error {
	for began := time.Now(); ; {
		err := unix.Sendto(r.out, frame, unix.MSG_NOSIGNAL, &r.peer)
		if err != unix.EINTR || time.Since(began) > sendTimeout {
			return err
		}
	}
}

// sendToInterface sends what comes from the peer through the interface.
func (r *Relay) sendToInterface() {
	buffer := make([]byte, maxFrame+1) // so that a longer datagram is seen to be one
	for {
		n, err := r.socket.Read(buffer)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil && !errors.Is(err, io.EOF): // which here is a datagram of no length
			continue
		}
		// The kernel refuses a frame that the interface's MTU has no room for.
		if n < ethernetLen {
			r.lost.Add(1)
		} else if _, err := r.iface.Write(buffer[:n]); err != nil {
			r.lost.Add(1)
		} else {
			r.fromPeer.Add(1)
		}
	}
}

// Counts returns the counters so far.
func (r *Relay) Counts() (Counts, error) {
	raw, err := r.iface.SyscallConn()
	if err != nil {
		return Counts{}, err
	}
	var overruns uint64
	var countErr error
	if err := raw.Control(func(fd uintptr) { overruns, countErr = frame.Overruns(int(fd)) }); err != nil {
		return Counts{}, err
	}
	r.lost.Add(overruns)
	return Counts{ToPeer: r.toPeer.Load(), FromPeer: r.fromPeer.Load(), NoPeer: r.noPeer.Load(), Lost: r.lost.Load()}, countErr
}
