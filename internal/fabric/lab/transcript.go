package lab

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A transcript is the output of a command in a node and its children. It is read until the
// last of them has closed it, which may be long after the command's end.
type transcript struct {
	r     *os.File
	log   io.Writer // gets whole lines, each with prefix and in one write; nil: none are kept but the last
	names string    // begins each line in the log
	keep  int       // lines

	ending chan struct{} // closed when all that the command itself wrote has been read

	mu   sync.Mutex // guards what follows
	part []byte     // of a line that has not ended
	last []string   // lines, keep at most
}

const (
	lastLines = 10
	longLine  = 1024 // bytes; more of a line is another line
)

// newTranscript keeps so many of the last lines. It returns the file that the command writes to, which is the caller's to
// close once the command has it.
func newTranscript(log io.Writer, prefix string, keep int) (*transcript, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	t := &transcript{r: r, log: log, names: prefix, keep: keep, ending: make(chan struct{})}
	go t.read()
	return t, w, nil
}

// read reads to the end. By a deadline, ended says that the command has ended.
func (t *transcript) read() {
	defer t.r.Close()
	buf := make([]byte, 4096)
	for {
		n, err := t.r.Read(buf)
		t.add(buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err = t.drain(buf); err == nil {
				close(t.ending)
				continue
			}
			fallthrough
		case err != nil:
			t.mu.Lock()
			t.line()
			t.mu.Unlock()
			if !isClosed(t.ending) {
				close(t.ending)
			}
			return
		}
	}
}

// drain reads what there is without waiting for more: as much as a pipe holds, since a
// child may write faster than it is read.
func (t *transcript) drain(buf []byte) error {
	if err := t.r.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	conn, err := t.r.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		left, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
		for left > 0 && err == nil {
			var n int
			if n, err = unix.Read(int(fd), buf); n <= 0 {
				break
			}
			t.add(buf[:n])
			left -= n
		}
		return true
	})
}

// ended says that the command has ended, and returns the last lines of what it wrote.
func (t *transcript) ended() []string {
	// An error says that all is read.
	_ = t.r.SetReadDeadline(time.Now())
	<-t.ending
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line()
	return t.last
}

func (t *transcript) add(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		whole := end >= 0
		if !whole {
			end = len(data)
		}
		end = min(end, longLine-len(t.part))
		t.part = append(t.part, data[:end]...)
		data = data[end:]
		if whole && len(data) > 0 && data[0] == '\n' {
			data = data[1:]
			t.line()
			continue
		}
		if len(t.part) == longLine {
			t.line()
		}
	}
}

// line ends a line, if one has begun. The caller holds the lock.
func (t *transcript) line() {
	text := strings.TrimRight(string(t.part), "\r")
	t.part = t.part[:0]
	if strings.TrimSpace(text) == "" {
		return
	}
	if t.log != nil {
		// Nobody can be told that the log is gone.
		_, _ = io.WriteString(t.log, t.names+text+"\n")
	}
	if len(t.last) == t.keep {
		t.last = append(t.last[:0:0], t.last[1:]...)
	}
	t.last = append(t.last, text)
}
