package linkem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkem/tap"
	"golang.org/x/sys/unix"
)

// tapBatch bounds the bytes of a tap's stream in each of the two batches that may wait for
// its reader.
const tapBatch = 4 << 20

// A packetTap is one tap of a link. It belongs to the loop's thread, but for the spool.
type packetTap struct {
	spool   *spool[byte]
	snaplen int
	missed  uint32
	packet  []byte // scratch
}

// copyToTaps copies wire packet i of a frame that arrived to the link's taps, with what was
// decided on it, and whether there was no memory to hold it. of is the packet in a fabric, which is no
// longer as in the frame; nil: it is. Their times are those of the
// wall clock, as in everything that is captured.
func (in *ingress) copyToTaps(n *line, f *frame.Frame, i int, of *packet, v *impair.Verdict, overrun bool, arrived time.Duration) {
	for _, t := range n.link.taps {
		t.packet = f.AppendPacket(t.packet[:0], i)
		if of != nil {
			of.change(t.packet)
		}
		p := tap.Packet{Direction: n.direction, Stamp: int64(arrived) + in.offset, Missed: t.missed, Comment: comment(v), Size: len(t.packet), Frame: t.packet}
		if t.snaplen > 0 {
			p.Frame = p.Frame[:min(t.snaplen, len(p.Frame))]
		}
		switch {
		case v.Fate != impair.Passes:
		case overrun:
			p.Comment = "lost: overrun, no memory left"
		default:
			p.Departs = int64(in.machine(v.Departs)) + in.offset
		}
		t.add(&p)
	}
}

// add adds a packet to the stream, if there is room.
func (t *packetTap) add(p *tap.Packet) {
	b := t.spool.open()
	if tap.Len(p) > cap(b.items)-len(b.items) {
		t.missed++
	} else {
		b.items = tap.Append(b.items, p)
		t.missed = 0
	}
	t.spool.close(b)
}

// comment returns a verdict in words; "" if the packet is merely delayed.
func comment(v *impair.Verdict) string {
	switch v.Fate {
	case impair.QueueFull:
		return "dropped: queue full"
	case impair.Lost, impair.Down:
		if v.Cause == impair.Fault {
			return fmt.Sprintf("dropped: fault %d", v.Fault)
		}
		return dropped[v.Cause]
	}
	said := ""
	add := func(what string) {
		if said != "" {
			said += ", "
		}
		said += what
	}
	if v.Flip.Any() {
		add("corrupted")
	}
	if v.Twice {
		add("duplicated")
	}
	if v.Overtakes > 0 {
		add("reordered")
	}
	if v.Mark {
		add("marked")
	}
	if v.Postponed > 0 {
		add("postponed by " + v.Postponed.String())
	}
	if v.Fault > 0 {
		add(fmt.Sprintf("fault %d", v.Fault))
	}
	return said
}

// dropped is the comment on a packet that is Lost or Down, by cause.
var dropped = [...]string{
	impair.None:   "dropped",
	impair.Chance: "dropped: loss",
	impair.Burst:  "dropped: loss (burst)",
	impair.Every:  "dropped: loss (every n-th)",
	impair.Place:  "dropped: loss (chosen packet)",
	impair.Cut:    "dropped: cut",
	impair.Flap:   "dropped: flap",
}

// tapEndTime bounds the time that the end of a tap takes to reach its reader.
const tapEndTime = 100 * time.Millisecond

// tap writes to a file what becomes of the packets of a link, until ctx ends or its reader
// is gone.
func (s *service) tap(ctx context.Context, r *control.Request, p tapParams) error {
	if p.Snaplen < 0 {
		return control.Errorf(control.Usage, "tap of link %s: snapshot length %d", p.Link, p.Snaplen)
	}
	file, err := pollable(r.Files[0])
	if err != nil {
		return fmt.Errorf("tap of link %s: %w", p.Link, err)
	}
	defer file.Close()
	t := &packetTap{spool: newSpool[byte](tapBatch), snaplen: p.Snaplen}
	err = s.commands.do(func() error {
		k, err := s.links.find(p.Link)
		if err != nil {
			return err
		}
		t.add(&tap.Packet{})
		k.taps = append(k.taps, t)
		return nil
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { // a reader that does not read must not hold up the end
		_ = file.SetWriteDeadline(time.Now().Add(tapEndTime)) // a regular file has no deadlines, and needs none
	})
	defer stop()
	write := func(b *batch[byte]) error {
		_, err := file.Write(b.items)
		return err
	}
	if err = t.spool.pass(write); err == nil {
		if _, err = r.Files[1].Write([]byte{0}); errors.Is(err, unix.EPIPE) { // nobody waits for it any more
			err = nil
		}
	}
	if err == nil {
		err = t.spool.run(ctx, write)
	}
	_ = s.commands.do(func() error { // a loop that has ended adds nothing any more
		k := s.links.byName[p.Link]
		k.taps = slices.DeleteFunc(k.taps, func(u *packetTap) bool { return u == t })
		return nil
	})
	if err == nil {
		err = t.end(write)
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// end writes the rest of the stream, when no packet is added any more.
func (t *packetTap) end(write func(*batch[byte]) error) error {
	if err := t.spool.pass(write); err != nil || t.missed == 0 {
		return err
	}
	return write(&batch[byte]{items: tap.Append(nil, &tap.Packet{Missed: t.missed})})
}

// pollable returns a copy of a file, to write to with deadlines if its kind has any.
func pollable(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, e := -1, error(nil)
	err = raw.Control(func(old uintptr) {
		if fd, e = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); e == nil {
			e = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(err, e); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
