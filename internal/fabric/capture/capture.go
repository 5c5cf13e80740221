// Package capture records the packets of interfaces as pcapng, the way a wire
// would have carried them: super-packets of segmentation offload are split into
// the packets they stand for, and checksums left to hardware are filled in.
//
// It takes both directions of each interface, with the kernel's timestamps in
// nanoseconds; the packets of one super-packet share one. Those of another host are
// corrected by how its clock differs, and the file says how well that is known. Packets that leave on a
// link which an engine carries are found again in the engine's tap (package tap),
// and what the engine decided becomes the packet's comment: that is how packets
// show that never arrived.
//
// It never holds traffic up: what it cannot record in time the kernel drops from
// the capture, or the engine from the tap, and both are counted. Its memory is
// bounded. VLAN tags, which the kernel keeps beside a frame, are not shown.
//
// Frames go from a goroutine for each interface (source.go), or from another host (stream.go), to one that splits,
// filters, orders and writes (record.go), in pcapng (pcapng.go), to one file or
// a ring of them (files.go). Decisions that taps tell of come to it likewise (fates.go).
//
// Beside captures, a Recent (recent.go) has the beginnings of the last packets of an
// interface at next to no cost, for looking back.
//
// Start reading at Open and Run.
package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/internal/topology/filter"
	"golang.org/x/sys/unix"
)

// receiveBuffer is the size of the buffer, in bytes, that the kernel is asked to
// keep packets in until they are taken.
const receiveBuffer = 32 << 20

// Open begins to capture an interface of the network namespace that the calling
// thread is in: the kernel keeps its packets until Run takes them from the
// socket.
func Open(iface string) (*os.File, error) {
	fd, err := frame.Open(iface, true, receiveBuffer)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return os.NewFile(uintptr(fd), iface), nil
}

// A Source is an interface being captured. Its files are closed by Run.
type Source struct {
	Name   string
	Socket *os.File // of Open
	Stream bool     // Socket is the stream of a Send instead
	// Tap is the stream of a tap on the interface's link, of which Direction is the
	// one that it sends into; nil if there is none.
	Tap       *os.File
	Direction int
	Carried   bool // the tap is on: an engine has the link
	// Host has the interface, if Socket is a stream, and Clock is how its wall clock differs from that of the capture's time line
	// when the capture begins. The stream tells what follows.
	Host  string
	Clock trunk.Difference
	Gone  <-chan struct{} // closed when there is nothing more to come; nil: never
}

// TapLength is the number of bytes of each packet that Run wants from a tap: they
// tell packets apart.
const TapLength = 192

// Options say what is recorded.
type Options struct {
	Filter  *filter.Filter // nil: all
	Snaplen int            // how many bytes of each packet; 0: all
	Count   uint64         // end after so many packets; 0: no limit
	Marks   <-chan Mark    // comments on instants, as they come; nil: none
}

// A Mark is a comment on an instant. In the file it is a comment of the first packet
// from then on, or of the end if no packet follows.
type Mark struct {
	Stamp int64 // ns since 1970
	Text  string
}

// Counts has the numbers of packets that a capture took of an interface and missed.
type Counts struct {
	Packets uint64 // wire packets recorded
	Other   uint64 // wire packets that the filter did not take
	// Dropped is frames that came too fast to be taken, of which a super-packet counts
	// once, and packets for which the disk or the reader was too slow.
	Dropped  uint64
	Fateless uint64 // what became of so many packets on the link came too fast to be taken
}

// Run records sources to files until ctx ends, all sources are gone, enough
// packets are recorded, all of which is no error, or writing fails. It writes
// the packets that had arrived by then. The counts are in the order of the sources.
func Run(ctx context.Context, sources []Source, files *Files, options Options) ([]Counts, error) {
	defer closeAll(sources)
	tapped, untap := context.WithCancel(context.WithoutCancel(ctx)) // taps are behind
	defer untap()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := newChunks(len(sources))
	r := newRecorder(sources, chunks, files, options)
	var takers, readers sync.WaitGroup
	failures := make([]error, len(sources))
	overruns := make([]uint64, len(sources))
	for i := range sources {
		takers.Go(func() { overruns[i], failures[i] = sources[i].take(ctx, i, chunks) })
		if sources[i].Tap != nil {
			readers.Go(func() { r.fates.read(tapped, &sources[i], i, chunks) })
		}
	}
	go func() {
		takers.Wait()
		close(chunks.full)
	}()
	silent := make(chan struct{})
	go func() {
		readers.Wait()
		close(silent)
	}()
	r.run(silent)
	cancel()
	for c := range chunks.full { // until every taker has noticed, if writing failed
		chunks.empty <- c
	}
	takers.Wait()
	for i := range sources {
		if sources[i].Tap != nil {
			sources[i].Tap.Close() // ends its reader
		}
		r.counts[i].Dropped += overruns[i]
	}
	untap()
	<-silent
	return r.counts, errors.Join(errors.Join(failures...), r.end())
}

func closeAll(sources []Source) {
	for _, s := range sources {
		s.Close()
	}
}

// Close closes the files of a source that Run is not called with.
func (s *Source) Close() {
	s.Socket.Close()
	if s.Tap != nil {
		s.Tap.Close()
	}
}

// unread reports whether a socket has something that was not read yet.
func unread(socket *os.File) bool {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) // of a socket it does not fail
	})
	return err == nil && n > 0
}

// nice is the priority of who captures, as the agents have it.
const nice = 5

// StandBack gives everybody else on the machine precedence over the calling
// process, which captures: when processors are short, records are to be lost
// rather than packets of the lab.
func StandBack() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("threads: %w", err)
	}
	for _, t := range tasks { // threads made later inherit
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			// Refused only to a thread that has ended, or one that is nicer already.
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
		}
	}
	return nil
}
