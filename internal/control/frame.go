package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ndklab/ndklab/internal/terminal"
)

// A frame goes over a stream carrier: it has a head, and one of some kinds a body.
type frame struct {
	kind   kind
	theirs bool   // the stream was opened by who receives the frame
	number uint32 // of the stream
	// value is the length of the body of a message and of data. Of credit, it is a number of
	// bytes; of the end of a flow, 1 if it was shut down; of a size, the window's.
	value uint32
}

type kind uint8

// The kinds of frames. Those but messages are of a stream.
const (
	frameMessage kind = iota // a table of files, and the JSON
	frameData                // bytes of a file
	frameCredit              // so many bytes more may be sent
	frameEnd                 // no more is sent
	frameReset               // no more is taken: whoever writes there gets EPIPE
	frameSize                // the sender's terminal is so large: rows and, in the lower half, columns
	kinds
)

// frameLen is the length of a frame's head: the kind, with the highest bit for theirs, the
// number and the value, big-endian.
const frameLen = 9

// most bytes of one frame of data.
const maxData = 32 << 10

var errMalformed = errors.New("malformed frame")

// put writes the head to b.
func (f frame) put(b []byte) {
	b[0] = byte(f.kind)
	if f.theirs {
		b[0] |= 0x80
	}
	binary.BigEndian.PutUint32(b[1:], f.number)
	binary.BigEndian.PutUint32(b[5:], f.value)
}

// readFrame reads a head and checks what can be said of it without its stream: of a body,
// that it is no longer than one of its kind may be, and message is what a message may have.
func readFrame(r io.Reader, message int) (f frame, err error) {
	var b [frameLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frame{}, err
	}
	f = frame{kind: kind(b[0] & 0x7f), theirs: b[0]&0x80 != 0,
		number: binary.BigEndian.Uint32(b[1:]), value: binary.BigEndian.Uint32(b[5:])}
	switch {
	case f.kind >= kinds, f.kind == frameData && f.value > maxData:
		return frame{}, fmt.Errorf("%w: kind %d of %d bytes", errMalformed, f.kind, f.value)
	case f.kind == frameMessage && uint64(f.value) > uint64(message):
		return frame{}, errTooLong
	}
	return f, nil
}

// A passage says which way bytes flow through a file, seen from its sender.
type passage uint8

const (
	outward  passage = 1 + iota // to the peer: it is open for reading
	inward                      // from the peer: it is open for writing
	both                        // both, as of a socket
	lentTerm                    // both, and it is a terminal that is the peer's alone
)

// An entry is a file in the table in front of a message. Files that are the same one have
// the same number.
type entry struct {
	number  uint32
	passage passage
	state   terminal.State // of a terminal that is lent
}

// maxTable bounds the length of a table of files.
const maxTable = 1 + MaxFiles*(5+stateLen)

func appendTable(b []byte, entries []entry) []byte {
	b = append(b, byte(len(entries)))
	for i := range entries {
		e := &entries[i]
		b = append(binary.BigEndian.AppendUint32(b, e.number), byte(e.passage))
		if e.passage == lentTerm {
			b = appendState(b, e.state)
		}
	}
	return b
}

// parseTable takes the table off a message, and returns what follows it.
func parseTable(b []byte) (entries []entry, text []byte, err error) {
	if len(b) == 0 || b[0] > MaxFiles {
		return nil, nil, fmt.Errorf("%w: a table of files", errMalformed)
	}
	n, b := int(b[0]), b[1:]
	for range n {
		if len(b) < 5 || b[4] < byte(outward) || b[4] > byte(lentTerm) {
			return nil, nil, fmt.Errorf("%w: a file of a message", errMalformed)
		}
		e := entry{number: binary.BigEndian.Uint32(b), passage: passage(b[4])}
		b = b[5:]
		if e.passage == lentTerm {
			if len(b) < stateLen {
				return nil, nil, fmt.Errorf("%w: a terminal of a message", errMalformed)
			}
			e.state = parseState(b)
			b = b[stateLen:]
		}
		entries = append(entries, e)
	}
	return entries, b, nil
}
