package capture

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
)

const (
	// window is the time that a packet waits for older ones of other sources.
	window = 40 * time.Millisecond
	// fateWindow is the time that it waits for its link's tap to report on it, while
	// an engine has the link, or had it: as long as an engine may be kept from its work.
	fateWindow = 250 * time.Millisecond
	// tick is the interval at which the recorder writes packets that have waited long
	// enough.
	tick = 10 * time.Millisecond
	// skew bounds the difference between the stamps of packets on which a tap reports
	// out of order.
	skew = 2 * time.Millisecond
	// patience bounds the time that a decision waits for a packet that does not come,
	// and the time that taps have, at the end, to say something more.
	patience = time.Second
	// maxHeld bounds the bytes of packets that wait; more of them are written sooner.
	maxHeld = 64 << 20
)

// A recorder splits, filters, orders and writes the packets of all sources. It
// belongs to one goroutine, but for the channel.
type recorder struct {
	sources []Source
	chunks  *chunks
	options Options
	started int64    // ns since 1970
	counts  []Counts // by source
	written uint64   // packets, of all sources
	scratch []byte   // the packet at hand

	window  time.Duration // how long packets wait for others
	waiting []queue       // by source
	fates   *fates        // what taps say
	come    []progress    // by source
	came    []bool        // by source: all that there was when write was called has come
	silent  []bool        // by source: no engine had the link then
	clocks  []clock       // by source
	pairs   pairs

	marks  []Mark // that no packet has yet
	output *output
	made   blocks // not yet with the output
	fresh  bool   // they begin another file
	size   uint64 // of the present file, bytes
}

// progress says how far a source has come. Its socket and its tap may be far apart when
// processors are short.
type progress struct {
	taken int64 // stamp of the last frame that came from the socket
	until int64 // of a stream: all older frames have come
	told  int64 // stamp of the last packet that the tap told of
	at    int64 // when it did, or its engine took the link over, ns since 1970; 0: never
}

// held is a packet that waits to be written.
type held struct {
	source  int
	stamp   int64
	since   int64  // when the recorder got it, ns since 1970
	length  int    // of which data is what is recorded
	data    []byte // in slab
	slab    *slab
	sent    bool // through the interface
	comment string
	key     uint64 // by which it waits for its decision in pairs; 0: it does not
	next    *held  // there
}

func newRecorder(sources []Source, chunks *chunks, files *Files, options Options) *recorder {
	r := &recorder{
		sources: sources, chunks: chunks, options: options, output: newOutput(files), made: blocks{snaplen: options.Snaplen},
		started: time.Now().UnixNano(), counts: make([]Counts, len(sources)), waiting: make([]queue, len(sources)), come: make([]progress, len(sources)), came: make([]bool, len(sources)),
		silent: make([]bool, len(sources)), clocks: make([]clock, len(sources)), fates: newFates(len(sources)), pairs: newPairs(),
	}
	if len(sources) > 1 || sources[0].Tap != nil {
		r.window = window
	}
	for i := range sources {
		if sources[i].Carried {
			r.come[i].at = r.started
		}
		r.clocks[i].take(sources[i].Clock)
		chunks.ahead[i].Store(int64(sources[i].Clock.Ahead)) // before its tap is read
	}
	return r
}

// begin begins a file.
func (r *recorder) begin() {
	var interfaces []described
	for i := range r.sources {
		interfaces = append(interfaces, r.clocks[i].describe(&r.sources[i]))
	}
	filter := ""
	if r.options.Filter != nil {
		filter = r.options.Filter.String()
	}
	r.made.section(interfaces, filter)
}

// complete ends a file with the counts, and a comment on all of it.
func (r *recorder) complete(comment string) {
	now := time.Now().UnixNano()
	for i := range r.counts {
		if clocks := r.clocks[i].sum(&r.sources[i]); comment == "" {
			comment = clocks
		} else if clocks != "" {
			comment += "; " + clocks
		}
		r.made.statistics(i, r.started, now, r.counts[i], comment)
		comment = ""
	}
}

// pass passes on what was made, if the output has room or for as long as it takes.
func (r *recorder) pass(wait bool) (passed bool) {
	if len(r.made.bytes) == 0 {
		return true
	}
	var spare []byte
	if wait {
		spare = <-r.output.spare
	} else {
		select {
		case spare = <-r.output.spare:
		default:
			return false
		}
	}
	r.output.full <- buffer{r.made.bytes, r.fresh} // which has room for every buffer
	r.size += uint64(len(r.made.bytes))
	r.made.bytes, r.fresh = spare, false
	return true
}

// end completes the last file.
func (r *recorder) end() error {
	r.takeMarks()
	r.complete(r.marked(math.MaxInt64, ""))
	r.pass(true)
	return r.output.close()
}

// run records until there are no more chunks, enough packets, or writing has
// failed. taps is closed when nothing more comes from taps.
func (r *recorder) run(taps <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	r.begin()
	for {
		select {
		case c, more := <-r.chunks.full:
			if !more {
				r.lastFates(taps)
				r.write(true)
				return
			}
			now := time.Now().UnixNano()
			for _, f := range c.frames {
				r.frame(c.source, c.bytes[f.begin:f.end], &f, now)
			}
			if r.sources[c.source].Stream {
				r.clocks[c.source].take(c.clock)
			}
			r.come[c.source].until = max(r.come[c.source].until, c.until)
			if p := &r.come[c.source]; c.told && p.at == 0 { // its first word is on its way
				p.at = now
			}
			r.chunks.out[c.source].Add(-1)
			r.chunks.empty <- c
		case d := <-r.fates.told:
			r.decide(d)
		case <-ticker.C:
			r.pairs.expire(r.come, time.Now().Add(-patience).UnixNano())
		case err := <-r.output.failed:
			r.output.failed <- err // for close
			return
		}
		if len(r.fates.told) > 0 { // before their packets are written
			continue
		}
		if r.write(false) {
			return
		}
		if len(r.chunks.full) == 0 { // a pause: let a reader see what there is
			r.pass(false)
		}
	}
}

// lastFates takes what taps say of the packets that wait, until they have ended or
// fall silent, but not for ever.
func (r *recorder) lastFates(taps <-chan struct{}) {
	late := time.After(patience)
	silence := time.NewTimer(fateWindow)
	defer silence.Stop()
	for r.undecided() {
		select {
		case d := <-r.fates.told:
			r.decide(d)
			silence.Reset(fateWindow)
		case <-silence.C:
			// We may have been kept from our work ourselves.
			if !r.telling() {
				return
			}
			silence.Reset(tick)
		case <-late:
			return
		case <-taps:
			for len(r.fates.told) > 0 {
				r.decide(<-r.fates.told)
			}
			return
		}
	}
}

// telling reports whether a tap has said something that has not come here yet.
func (r *recorder) telling() bool {
	for i := range r.sources {
		if r.sources[i].Tap != nil && r.behind(i) {
			return true
		}
	}
	return false
}

// behind reports whether the tap of a source has said something that has not come here
// yet: it is in the socket, or on its way from there.
func (r *recorder) behind(source int) bool {
	return unread(r.sources[source].Tap) || r.fates.behind[source].Load() != 0
}

// undecided reports whether packets wait of which an engine may have something to say.
func (r *recorder) undecided() bool {
	for _, h := range r.pairs.packets {
		if r.come[h.source].at != 0 {
			return true
		}
	}
	return false
}

// frame takes the packets of a frame.
func (r *recorder) frame(source int, raw []byte, t *taken, now int64) {
	counts := &r.counts[source]
	f, err := frame.Parse(raw)
	if err != nil {
		counts.Dropped++
		return
	}
	stamp := t.stamp
	if stamp == 0 { // the kernel did not say
		stamp = now
	}
	r.come[source].taken = stamp
	for i := range f.Segments() {
		packet := f.AppendPacket(r.scratch[:0], i)
		r.scratch = packet
		if r.options.Filter != nil && !r.options.Filter.Match(packet) {
			counts.Other++
			continue
		}
		snapped := packet
		if r.options.Snaplen > 0 {
			snapped = packet[:min(len(packet), r.options.Snaplen)]
		}
		h := r.waiting[source].add(snapped, stamp)
		h.source, h.since, h.length, h.sent = source, now, len(packet), t.sent
		if t.sent && r.sources[source].Tap != nil {
			r.pairs.packet(h, signature(source, packet, len(packet)))
		}
	}
}

// decide takes what a tap says.
func (r *recorder) decide(all told) {
	now := time.Now().UnixNano()
	p := &r.come[all.source]
	for _, d := range all.decisions {
		r.counts[d.source].Fateless += uint64(d.missed)
		p.told, p.at = max(p.told, d.stamp), now
		if d.key != 0 {
			r.pairs.decision(d, now)
		}
	}
	r.fates.behind[all.source].Add(-all.reads)
}

// decided reports whether a packet need not wait for a decision any more at an
// instant: no engine has its link, the tap has told of later packets, or it has had
// the time and said nothing. A tap that we are behind with is waited for, and so is the
// first that it says, namely that an engine has the link.
func (r *recorder) decided(h *held, now int64) bool {
	p := &r.come[h.source]
	if h.key == 0 || r.silent[h.source] || h.stamp+int64(skew) < p.told {
		return true
	}
	if p.at != 0 && max(p.at, h.since) > now-int64(fateWindow) {
		return false
	}
	if r.behind(h.source) {
		if p.at != 0 {
			p.at = now
		}
		return false
	}
	if p.at == 0 && r.sources[h.source].Stream && !r.passed(h.source, h, now) { // it would say if the tap is on
		return false
	}
	r.silent[h.source] = p.at == 0
	return true
}

// ready reports whether everything of a source that came before the call has been
// recorded. Sources may be far apart when processors are short.
func (r *recorder) ready(source int) bool {
	return !unread(r.sources[source].Socket) && r.chunks.out[source].Load() == 0
}

// passed reports whether a stream has nothing as old as a packet any more. It says itself how far it has come, since no
// socket here has the frames that are on their way from another host. A host that does not say so in time is not waited for.
func (r *recorder) passed(source int, h *held, now int64) bool {
	return r.come[source].until > h.stamp || h.since < now-int64(patience)
}

// oldest is the packet to be written next, nil if none waits, and how many bytes of
// packets wait.
func (r *recorder) oldest() (oldest *held, bytes int) {
	for i := range r.waiting {
		h := r.waiting[i].first()
		if h != nil && (oldest == nil || h.stamp < oldest.stamp) {
			oldest = h
		}
		bytes += r.waiting[i].bytes
	}
	return oldest, bytes
}

// next reports whether no source will still come with an older packet than the oldest
// one that waits.
func (r *recorder) next(h *held, now int64) bool {
	for i := range r.sources {
		if i == h.source || r.waiting[i].first() != nil || r.came[i] {
			continue
		}
		if r.sources[i].Stream {
			if !r.passed(i, h, now) {
				return false
			}
			continue
		}
		if !r.ready(i) {
			return false
		}
		r.came[i] = true
	}
	return true
}

// takeMarks takes the marks that have come.
func (r *recorder) takeMarks() {
	for {
		select {
		case m := <-r.options.Marks:
			r.marks = append(r.marks, m)
		default:
			return
		}
	}
}

// marked is the comment of a packet with a stamp, with the marks up to that.
func (r *recorder) marked(stamp int64, comment string) string {
	for len(r.marks) > 0 && r.marks[0].Stamp <= stamp {
		text := r.marks[0].Text
		if comment != "" {
			text = comment + "; " + text
		}
		comment, r.marks = text, r.marks[1:]
	}
	return comment
}

// write passes on the packets that have waited long enough, at the end all of them,
// and reports whether there are enough now. Those for which the output has no room
// are dropped, but at the end it waits.
func (r *recorder) write(end bool) (enough bool) {
	now := time.Now().UnixNano()
	clear(r.came)
	clear(r.silent)
	r.takeMarks()
	for {
		h, bytes := r.oldest()
		if h == nil || !end && bytes <= maxHeld && (h.since > now-int64(r.window) || !r.decided(h, now) || !r.next(h, now)) {
			return false
		}
		r.pairs.giveUp(h)
		counts := &r.counts[h.source]
		if len(r.made.bytes) < bufferSize || r.pass(end) {
			r.made.packet(h.source, h.stamp, h.length, h.data, h.sent, r.marked(h.stamp, h.comment))
			counts.Packets++
			r.written++
		} else {
			counts.Dropped++
		}
		r.waiting[h.source].remove()
		if r.options.Count > 0 && r.written == r.options.Count {
			return true
		}
		if limit := r.output.files.size; limit > 0 && r.size+uint64(len(r.made.bytes)) >= limit {
			r.complete("")
			r.pass(true) // of a ring, little is lost by waiting
			r.fresh, r.size = true, 0
			r.begin()
		}
	}
}
