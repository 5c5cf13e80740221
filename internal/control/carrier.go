package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A carrier takes a channel's messages to the peer, and the peer's here, with their files.
// There is one for processes of one machine, unixCarrier, and one for others, streams.
type carrier interface {
	// write sends m, whose text with its length in front is buf, and takes descriptors over.
	// It is called by one goroutine at a time.
	write(m *message, buf []byte, fds []int) error
	// read returns the next message, with its files. Any error is the end of the channel. A
	// message of more than longest bytes is one.
	read(longest int) (*message, error)
	// peer returns the process at the other end.
	peer() (*unix.Ucred, error)
	// end is called after the last read.
	end()
	// close ends all of it, and does not wait.
	close()
}

// A unixCarrier is a Unix stream socket. Files cross as descriptors.
type unixCarrier struct{ sock *net.UnixConn }

func (c unixCarrier) end() { c.sock.Close() }

func (c unixCarrier) close() { c.sock.Close() }

func (c unixCarrier) peer() (*unix.Ucred, error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("peer credentials: %w", credErr)
	}
	return cred, nil
}

func (c unixCarrier) write(_ *message, buf []byte, fds []int) error {
	defer closeAll(fds)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.sock.WriteMsgUnix(buf, rights, nil)
	if err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
			return ErrClosed // the reader takes what the peer said last, and ends the channel
		}
		return err // nothing was sent: too many descriptors in flight, or the like
	}
	if n < len(buf) {
		if _, err := c.sock.Write(buf[n:]); err != nil {
			// The peer, if there is one, could not tell where the next message
			// begins. Messages that it has sent may still be read.
			_ = c.sock.CloseWrite()
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
	}
	return nil
}

func (c unixCarrier) read(longest int) (*message, error) {
	var head [headLen]byte
	oob := make([]byte, unix.CmsgSpace(MaxFiles*4))
	n, oobn, flags, _, err := c.sock.ReadMsgUnix(head[:], oob)
	if err != nil {
		return nil, err
	}
	m := &message{files: parseFiles(oob[:oobn])}
	cut := flags&unix.MSG_CTRUNC != 0
	if cut && len(m.files) == MaxFiles {
		err = fmt.Errorf("more than %d files with one message", MaxFiles)
	} else {
		err = c.readBody(m, head, n, longest)
	}
	if err != nil {
		closeFiles(m.files)
		return nil, err
	}
	if cut { // the rest of the message is there
		closeFiles(m.files)
		m.files, m.failed = nil, Errorf(Unable, "the files of %s do not arrive: a process of the lab may open no more (ulimit -n)", m.Method)
	}
	return m, nil
}

// readBody reads what follows the first n bytes of head.
func (c unixCarrier) readBody(m *message, head [headLen]byte, n, longest int) error {
	if n == 0 {
		return io.EOF
	}
	if _, err := io.ReadFull(c.sock, head[n:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(longest) {
		return errTooLong
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.sock, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, m); err != nil {
		return fmt.Errorf("malformed message: %w", err)
	}
	return nil
}

// parseFiles makes files of received descriptors. The kernel has marked them
// close-on-exec, since package net reads with MSG_CMSG_CLOEXEC.
func parseFiles(oob []byte) []*os.File {
	// The kernel's control messages are well formed, as far as they were not
	// cut off.
	messages, _ := unix.ParseSocketControlMessage(oob)
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // some other kind of control message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}
