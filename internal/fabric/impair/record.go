package impair

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A Record is a decision of the model with the packet that it was made on.
type Record struct {
	Link      string // name of the link
	Direction int    // index of the direction, 0 or 1
	Place     uint64 // of the packet among those that entered the direction, from 1
	At        time.Duration
	Frame     int      // bytes, as in Packet
	Known     bool     // whether the packet is RoCEv2, with the identity:
	RoCE      Identity //
	Verdict   Verdict
}

// Record returns the record of the packet that Packet decided on last. The link's
// name and the direction's index are the caller's to fill in.
func (d *Direction) Record(p *Packet, at time.Duration, v *Verdict) Record {
	r := Record{Place: d.place, At: at, Frame: p.Frame, Verdict: *v}
	if p.RoCE != nil {
		r.Known, r.RoCE = true, *p.RoCE
	}
	return r
}

// A log is a text of lines, each a JSON object: the first a header, the others
// records in any order of directions, in the order of places within one, or
// notes that records are missing.

// logVersion is the version of the format.
const logVersion = 1

// AppendHeader appends the first line of a log to b. seed is the lab's.
func AppendHeader(b []byte, seed uint64) []byte {
	b = append(b, `{"ndklab":"decisions","version":`...)
	b = strconv.AppendInt(b, logVersion, 10)
	b = append(b, `,"seed":`...)
	b = strconv.AppendUint(b, seed, 10)
	return append(b, "}\n"...)
}

// AppendMissing appends a line that says that n records could not be written.
func AppendMissing(b []byte, n uint64) []byte {
	b = append(b, `{"missing":`...)
	b = strconv.AppendUint(b, n, 10)
	return append(b, "}\n"...)
}

// CountRecords returns how many of whole lines of a log, none of which is its first, are records.
func CountRecords(lines []byte) uint64 {
	return uint64(bytes.Count(lines, []byte{'\n'}) - bytes.Count(lines, []byte(`{"missing":`))) // which no string has in it: its quotes would be escaped
}

// Append appends the record's line to b. It allocates nothing if b has room;
// 512 bytes and the link's name are enough.
func (r *Record) Append(b []byte) []byte {
	v := &r.Verdict
	b = append(b, `{"link":`...)
	b = appendString(b, r.Link)
	b = appendInt(b, "direction", int64(r.Direction))
	b = append(b, `,"place":`...)
	b = strconv.AppendUint(b, r.Place, 10)
	b = appendInt(b, "at_ns", int64(r.At))
	b = appendInt(b, "frame", int64(r.Frame))
	if r.Known {
		b = appendInt(b, "opcode", int64(r.RoCE.Opcode))
		b = appendInt(b, "qp", int64(r.RoCE.QP))
		b = appendInt(b, "psn", int64(r.RoCE.PSN))
		if r.RoCE.Opcode.HasAETH() {
			b = appendInt(b, "syndrome", int64(r.RoCE.Syndrome))
		}
		b = appendSome(b, "cm", int64(r.RoCE.CM))
	}
	b = append(b, `,"fate":"`...)
	b = append(b, v.Fate.String()...)
	b = append(b, '"')
	if v.Cause != None {
		b = append(b, `,"cause":"`...)
		b = append(b, v.Cause.String()...)
		b = append(b, '"')
	}
	b = appendSome(b, "fault", int64(v.Fault))
	if v.Fate == Passes {
		b = appendSome(b, "queued_ns", int64(v.Queued))
		b = appendInt(b, "delay_ns", int64(v.travel(r.At)))
		b = appendSome(b, "postponed_ns", int64(v.Postponed))
		b = appendSome(b, "overtakes", int64(v.Overtakes))
		b = appendTrue(b, "mark", v.Mark)
		b = appendTrue(b, "twice", v.Twice)
		if v.Flip.Any() {
			b = append(b, `,"flip":[`...)
			for i, bit := range v.Flip.bits {
				if bit == 0 {
					break
				}
				if i > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendUint(b, uint64(bit-1), 10)
			}
			b = append(b, ']')
		}
	}
	return append(b, "}\n"...)
}

// travel returns how long the packet is on its way behind the queue, without what a
// fault adds.
func (v *Verdict) travel(at time.Duration) time.Duration {
	return v.Departs - v.Postponed - v.Queued - at
}

func appendInt(b []byte, key string, v int64) []byte {
	b = append(append(append(b, `,"`...), key...), `":`...)
	return strconv.AppendInt(b, v, 10)
}

// appendSome leaves 0 out.
func appendSome(b []byte, key string, v int64) []byte {
	if v == 0 {
		return b
	}
	return appendInt(b, key, v)
}

func appendTrue(b []byte, key string, v bool) []byte {
	if !v {
		return b
	}
	return append(append(append(b, `,"`...), key...), `":true`...)
}

// appendString appends a JSON string. Names of links are plain; others take the
// slow path.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // a string is never refused
				panic(err)
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// A Log holds the decisions of a log, by direction.
type Log struct {
	Seed      uint64 // the recorded lab's
	Records   uint64
	Missing   uint64 // records that could not be written
	CutShort  bool   // the last line is not whole, and was left out
	sequences map[place]*Sequence
}

// place identifies a direction in a lab.
type place struct {
	link      string
	direction int
}

// Sequence returns what was recorded of a direction; nil if nothing was.
func (l *Log) Sequence(link string, direction int) *Sequence {
	return l.sequences[place{link, direction}]
}

// Links returns the names of the links that the log has decisions on, in their order.
func (l *Log) Links() []string {
	var names []string
	for at := range l.sequences {
		names = append(names, at.link)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxLine bounds a log's lines, bytes.
const maxLine = 1 << 16

// ReadLog reads a log to its end. Errors name the line.
func ReadLog(r io.Reader) (*Log, error) {
	log := &Log{sequences: map[place]*Sequence{}}
	lines := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && n > 1:
			log.CutShort = len(line) > 0
			return log, nil
		case err == io.EOF || err == nil && n == 1:
			err = log.header(line)
		case err == bufio.ErrBufferFull:
			err = fmt.Errorf("a line of more than %d bytes, which is no record", maxLine)
		case err == nil:
			err = log.line(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

func (l *Log) header(line []byte) error {
	var h struct {
		Ndklab  string
		Version int
		Seed    uint64
	}
	if err := json.Unmarshal(line, &h); err != nil || h.Ndklab != "decisions" {
		return errors.New("this is no log of decisions")
	}
	if h.Version != logVersion {
		return fmt.Errorf("the log is of version %d, not %d", h.Version, logVersion)
	}
	l.Seed = h.Seed
	return nil
}

func (l *Log) line(line []byte) error {
	w := written{Direction: -1}
	if err := json.Unmarshal(line, &w); err != nil {
		return fmt.Errorf("this is no record: %w", err)
	}
	if w.Missing > 0 {
		l.Missing += w.Missing
		return nil
	}
	r, err := w.record()
	if err != nil {
		return err
	}
	at := place{r.Link, r.Direction}
	s := l.sequences[at]
	if s == nil {
		s = &Sequence{}
		l.sequences[at] = s
	}
	l.Records++
	return s.add(&r)
}

// written is a line of a log.
type written struct {
	Link      string        `json:"link"`
	Direction int           `json:"direction"`
	Place     uint64        `json:"place"`
	At        time.Duration `json:"at_ns"`
	Frame     uint32        `json:"frame"`
	Opcode    *roce.Opcode  `json:"opcode"`
	QP        uint32        `json:"qp"`
	PSN       uint32        `json:"psn"`
	Syndrome  roce.Syndrome `json:"syndrome"`
	CM        mad.Attribute `json:"cm"`
	Fate      string        `json:"fate"`
	Cause     string        `json:"cause"`
	Fault     uint16        `json:"fault"`
	Queued    time.Duration `json:"queued_ns"`
	Delay     time.Duration `json:"delay_ns"`
	Postponed time.Duration `json:"postponed_ns"`
	Overtakes uint16        `json:"overtakes"`
	Mark      bool          `json:"mark"`
	Twice     bool          `json:"twice"`
	Flip      []uint32      `json:"flip"`
	Missing   uint64        `json:"missing"`
}

// maxInstant bounds instants and durations in a log, so that sums of four of them
// stay in range: half a century.
const maxInstant = 50 * 365 * 24 * time.Hour

func (w *written) record() (Record, error) {
	r := Record{Link: w.Link, Direction: w.Direction, Place: w.Place, At: w.At, Frame: int(w.Frame)}
	if w.Link == "" || w.Direction < 0 || w.Direction > 1 || w.Place == 0 {
		return r, errors.New("a record needs a link, a direction of 0 or 1, and a place from 1 on")
	}
	if w.Opcode != nil {
		r.Known, r.RoCE = true, Identity{*w.Opcode, w.Syndrome, w.CM, w.QP, w.PSN}
	}
	v := &r.Verdict
	var known bool
	if v.Fate, known = fateOf(w.Fate); !known {
		return r, fmt.Errorf("unknown fate %q", w.Fate)
	}
	if v.Cause, known = causeOf(w.Cause); !known {
		return r, fmt.Errorf("unknown cause %q", w.Cause)
	}
	for _, t := range [...]time.Duration{w.At, w.Queued, w.Delay, w.Postponed} {
		if t < 0 || t > maxInstant {
			return r, fmt.Errorf("%d ns is out of range", t)
		}
	}
	v.Fault, v.Overtakes, v.Mark, v.Twice = w.Fault, w.Overtakes, w.Mark, w.Twice
	v.Queued, v.Postponed = w.Queued, w.Postponed
	if v.Fate == Passes {
		v.Departs = w.At + w.Queued + w.Delay + w.Postponed
	}
	if len(w.Flip) > MaxFlips {
		return r, fmt.Errorf("%d bits flipped, more than %d", len(w.Flip), MaxFlips)
	}
	if w.Overtakes > MaxDepth {
		return r, fmt.Errorf("%d packets overtaken, more than %d", w.Overtakes, MaxDepth)
	}
	for i, bit := range w.Flip {
		if bit >= 8*maxFrame {
			return r, fmt.Errorf("no packet has bit %d", bit)
		}
		v.Flip.bits[i] = bit + 1
	}
	return r, nil
}
