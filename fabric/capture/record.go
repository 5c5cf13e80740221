package capture

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/fabric/frame"
)

const (
	// window is how long a packet waits for those of other sources that are older,
	// and for what its link's tap says of it.
	window = 40 * time.Millisecond
	// tick is how often the recorder writes what has waited long enough.
	tick = 10 * time.Millisecond
	// maxHeld is how many bytes of packets wait at most; more of them are written
	// sooner.
	maxHeld = 64 << 20
)

// A recorder splits, filters, orders and writes the packets of all sources. It
// belongs to one goroutine, but for the channel.
type recorder struct {
	sources []Source
	files   *Files
	options Options
	out     writer
	started int64    // ns since 1970
	counts  []Counts // by source
	written uint64   // packets, of all sources
	scratch []byte   // the packet at hand

	window  time.Duration // how long packets wait for others, and for their fates
	waiting queue
	fates   chan decision // what taps say
	pairs   pairs
}

// held is a packet that waits to be written.
type held struct {
	source  int
	stamp   int64
	length  int    // of which data is what is recorded
	data    []byte // in slab
	slab    *slab
	comment string
	key     uint64 // by which it waits for its decision in pairs; 0: it does not
	next    *held  // there
}

func newRecorder(sources []Source, files *Files, options Options) *recorder {
	r := &recorder{
		sources: sources, files: files, options: options, out: writer{w: files, snaplen: options.Snaplen},
		started: time.Now().UnixNano(), counts: make([]Counts, len(sources)),
		fates: make(chan decision, 4096), pairs: newPairs(),
	}
	if len(sources) > 1 || sources[0].Tap != nil {
		r.window = window
	}
	return r
}

// begin begins a file.
func (r *recorder) begin() error {
	if err := r.files.next(); err != nil {
		return err
	}
	var names []string
	for i := range r.sources {
		names = append(names, r.sources[i].Name)
	}
	filter := ""
	if r.options.Filter != nil {
		filter = r.options.Filter.String()
	}
	r.out.section(names, filter)
	return r.out.flush()
}

// end completes the last file.
func (r *recorder) end() error {
	err := r.complete()
	if e := r.files.Close(); err == nil {
		err = e
	}
	return err
}

// complete ends a file with the counts.
func (r *recorder) complete() error {
	if r.files.failed != nil { // and has said so
		return nil
	}
	now := time.Now().UnixNano()
	for i := range r.counts {
		r.out.statistics(i, r.started, now, r.counts[i])
	}
	return r.out.flush()
}

// run records until there are no more chunks, or enough packets.
func (r *recorder) run(chunks *chunks) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for more := true; more; {
		now := time.Now().UnixNano()
		until := now - int64(r.window)
		select {
		case c, ok := <-chunks.full:
			if !ok {
				more, until = false, math.MaxInt64
				break
			}
			for _, f := range c.frames {
				r.frame(c.source, c.bytes[f.begin:f.end], f.stamp)
			}
			chunks.empty <- c
		case d := <-r.fates:
			r.decide(d, now)
		case <-ticker.C:
			r.pairs.expire(now - 2*int64(r.window))
		}
		for !more && len(r.fates) > 0 {
			r.decide(<-r.fates, now)
		}
		if enough, err := r.write(until); enough || err != nil {
			return err
		}
		if len(chunks.full) == 0 { // a pause: let a reader see what there is
			if err := r.out.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// frame takes the packets of a frame.
func (r *recorder) frame(source int, raw []byte, stamp int64) {
	counts := &r.counts[source]
	f, err := frame.Parse(raw)
	if err != nil {
		counts.Dropped++
		return
	}
	if stamp == 0 { // the kernel did not say
		stamp = time.Now().UnixNano()
	}
	for i := range f.Segments() {
		packet := f.AppendPacket(r.scratch[:0], i)
		r.scratch = packet
		counts.Received++
		if r.options.Filter != nil && !r.options.Filter.Match(packet) {
			continue
		}
		snapped := packet
		if r.options.Snaplen > 0 {
			snapped = packet[:min(len(packet), r.options.Snaplen)]
		}
		h := r.waiting.add(snapped, stamp)
		h.source, h.length = source, len(packet)
		if r.sources[source].Tap != nil {
			r.pairs.packet(h, signature(source, packet, len(packet)))
		}
	}
}

// decide takes what a tap says.
func (r *recorder) decide(d decision, now int64) {
	r.counts[d.source].Fateless += uint64(d.missed)
	if d.key != 0 {
		r.pairs.decision(d.key, d.comment, now)
	}
}

// write writes the packets up to an instant, and reports whether there are
// enough now.
func (r *recorder) write(until int64) (enough bool, err error) {
	for {
		h := r.waiting.first()
		if h == nil || h.stamp > until && r.waiting.bytes <= maxHeld {
			return false, nil
		}
		r.pairs.giveUp(h)
		if err := r.out.packet(h.source, h.stamp, h.length, h.data, h.comment); err != nil {
			return false, err
		}
		r.counts[h.source].Packets++
		r.written++
		r.waiting.remove()
		if r.written == r.options.Count {
			return true, nil
		}
		if r.files.full(len(r.out.blocks)) {
			if err := r.complete(); err != nil {
				return false, err
			}
			if err := r.begin(); err != nil {
				return false, err
			}
		}
	}
}
