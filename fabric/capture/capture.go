// Package capture records the packets of an interface as a pcapng stream, the
// way a wire would have carried them: super-packets of segmentation offload are
// split into the packets they stand for, and checksums left to hardware are
// filled in.
//
// It takes both directions, with the kernel's timestamps in nanoseconds; the
// packets of one super-packet share one. It never holds traffic up: what it
// cannot write in time the kernel drops from the capture, and that is counted.
// Its memory is the socket's receive buffer and little else.
//
// VLAN tags, which the kernel keeps beside a frame, are not shown.
//
// Start reading at Open.
package capture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/fabric/frame"
	"golang.org/x/sys/unix"
)

// receiveBuffer is what the kernel is asked to hold until it is written, bytes.
const receiveBuffer = 32 << 20

// receiveBatch is how many frames are read at once.
const receiveBatch = 16

// Counts is what a capture took and missed.
type Counts struct {
	Packets uint64 // wire packets written
	Dropped uint64 // frames that came too fast to be written; a super-packet counts once
}

// A Capture is an interface being captured.
type Capture struct {
	iface   string
	snaplen int
	socket  *os.File
	counts  Counts
}

// Open begins to capture an interface of the network namespace that the calling
// thread is in; packets are kept until Run takes them. Of each packet the first
// snaplen bytes are recorded; 0 is all.
func Open(iface string, snaplen int) (*Capture, error) {
	if snaplen < 0 {
		return nil, fmt.Errorf("capture of %s: negative snapshot length %d", iface, snaplen)
	}
	fd, err := frame.Open(iface, true, receiveBuffer)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return &Capture{iface: iface, snaplen: snaplen, socket: os.NewFile(uintptr(fd), iface)}, nil
}

// Run writes what is captured to w until ctx ends, which is no error, or
// writing fails. What arrived before the end is written. It may be called once,
// from any thread, and ends the capture.
func (c *Capture) Run(ctx context.Context, w io.Writer) (Counts, error) {
	defer c.socket.Close()
	err := c.run(ctx, w)
	if err != nil {
		err = fmt.Errorf("capture of %s: %w", c.iface, err)
	}
	return c.counts, err
}

func (c *Capture) run(ctx context.Context, w io.Writer) error {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		// A past deadline ends the wait; it cannot fail on a socket that is open.
		_ = c.socket.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	out := bufio.NewWriterSize(w, 1<<16)
	file, err := newWriter(out, c.iface, c.snaplen)
	if err != nil {
		return err
	}
	err = c.copy(raw, out, file)
	if overruns, e := c.overruns(raw); e != nil {
		err = errors.Join(err, e)
	} else {
		c.counts.Dropped += overruns
	}
	return errors.Join(err, out.Flush())
}

// copy writes frames until the wait for more is ended.
func (c *Capture) copy(raw syscall.RawConn, out *bufio.Writer, file *writer) error {
	buffers := make([][]byte, receiveBatch)
	for i := range buffers {
		buffers[i] = make([]byte, frame.MaxLen)
	}
	receiver := frame.NewReceiver(buffers)
	var packet []byte
	for ended := false; ; {
		var n int
		var err error
		receive := func(fd uintptr) bool {
			n, err = receiver.Receive(int(fd))
			return ended || err != unix.EAGAIN
		}
		if ended { // take what is left without waiting
			if e := raw.Control(func(fd uintptr) { receive(fd) }); e != nil {
				return e
			}
		} else if e := raw.Read(receive); errors.Is(e, os.ErrDeadlineExceeded) {
			ended = true
			continue
		} else if e != nil {
			return e
		}
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.EINVAL: // a super-packet that a virtio header cannot describe
			c.counts.Dropped++
			continue
		case unix.ENETDOWN: // it may come up again
			continue
		default:
			return err
		}
		for i := range n {
			packet, err = c.write(file, receiver, i, packet)
			if err != nil {
				return err
			}
		}
		if n < receiveBatch { // a pause: let a reader at the other end of a pipe see it
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// write records the packets of received frame i. packet is scratch space.
func (c *Capture) write(file *writer, receiver *frame.Receiver, i int, packet []byte) ([]byte, error) {
	f, err := frame.Parse(receiver.Frame(i))
	if err != nil || receiver.Cut(i) {
		c.counts.Dropped++
		return packet, nil
	}
	stamp := receiver.Stamp(i)
	for s := range f.Segments() {
		packet = f.AppendPacket(packet[:0], s)
		if err := file.packet(stamp, packet); err != nil {
			return packet, err
		}
		c.counts.Packets++
	}
	return packet, nil
}

func (c *Capture) overruns(raw syscall.RawConn) (n uint64, err error) {
	e := raw.Control(func(fd uintptr) { n, err = frame.Overruns(int(fd)) })
	return n, errors.Join(e, err)
}
