// Package linkstats collects the statistics of one direction of a link: what became of the
// packets that entered it, how long those took that left it, and at what rate they left.
//
// The link engine or a simulation reports each packet to it. The package knows neither of
// them. Package linkreport compares the statistics with what was asked for.
//
// Start reading at Collector.
package linkstats

import (
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/topology"
)

// A Collector collects the statistics of one direction: in all, and since Begin. It allocates
// nothing per packet, but for pages of its histograms when a duration of that length
// comes for the first time. It is not for use by several goroutines at once.
type Collector struct {
	period          // since Begin
	earlier *period // until then; nil before the first Begin

	observed *observed // by Observe; nil before
	counted  uint64    // by Changed: all counters together
	changed  uint64    // by Changed: the look that found them so; 0 before

	Tolerance topology.Tolerance // whose limits late packets are counted by
}

// An observed is the delay as it was observed last. It is not changed.
type observed struct {
	bounds []int64
	bars   histogram.Bars
}

// A period holds the statistics from one moment on.
type period struct {
	Counts Statistics // the counters; statistics fills in the rest

	losing    bool // the last packet was Dropped
	delay     durations
	queueing  durations
	lateness  durations
	delivered meter
}

// Begin begins another period of the direction that model decides for, at an instant of
// its time (impair.Direction.Begin).
func (c *Collector) Begin(model *impair.Direction, at time.Duration, logged bool) {
	model.Begin(at, logged)
	if c.earlier == nil {
		c.earlier = new(period)
	}
	c.earlier.merge(&c.period)
	c.earlier.Counts.Replayed = model.Replayed()
	c.period = period{}
}

// merge adds a later period.
func (t *period) merge(later *period) {
	t.Counts.merge(&later.Counts)
	t.delay.merge(&later.delay)
	t.queueing.merge(&later.queueing)
	t.lateness.merge(&later.lateness)
	t.delivered.merge(&later.delivered)
}

// sums returns the counters that add up.
func (m *Statistics) sums() [16]*uint64 {
	return [...]*uint64{
		&m.Packets, &m.Bytes, &m.Delivered, &m.Dropped, &m.Bursts, &m.LostFault, &m.LostQueue, &m.LostCut, &m.LostDown, &m.LostOverrun,
		&m.Duplicated, &m.Reordered, &m.Corrupted, &m.Marked, &m.Faulted, &m.Early,
	}
}

// merge adds the counters of a later period.
func (m *Statistics) merge(later *Statistics) {
	from := later.sums()
	for i, to := range m.sums() {
		*to += *from[i]
	}
	m.PeakPackets = max(m.PeakPackets, later.PeakPackets)
	m.PeakBytes = max(m.PeakBytes, later.PeakBytes)
}

// Join returns the statistics of a direction of a link between hosts, of which each host has a part: where packets enter,
// they are counted and decided on, and where they leave, it shows how long they took.
func Join(a, b *Statistics) Statistics {
	all := *a
	all.merge(b)
	if b.Packets > a.Packets {
		all.Asked, all.Replayed = b.Asked, b.Replayed
	}
	if b.Delivered > a.Delivered {
		all.Delay, all.Delays, all.DelayBars, all.Queueing = b.Delay, b.Delays, b.DelayBars, b.Queueing
		all.Lateness, all.Late, all.PeakRate, all.MeanRate = b.Lateness, b.Late, b.PeakRate, b.MeanRate
	}
	return all
}

// Decided counts what a direction has decided on a packet that entered it. Copies are
// counted by the caller that makes them.
func (c *Collector) Decided(model *impair.Direction, v *impair.Verdict) {
	m := &c.Counts
	switch v.Fate {
	case impair.Lost:
		if v.Cause == impair.Fault {
			m.LostFault++
			break
		}
		m.Dropped++
		if !c.losing {
			m.Bursts++
		}
	case impair.QueueFull:
		m.LostQueue++
	case impair.Down:
		m.LostCut++
	}
	c.losing = v.Fate == impair.Lost && v.Cause != impair.Fault
	if v.Fault != 0 {
		m.Faulted++
	}
	if v.Overtakes > 0 {
		m.Reordered++
	}
	if v.Mark {
		m.Marked++
	}
	if v.Flip.Any() {
		m.Corrupted++
	}
	if v.Queued > 0 {
		packets, bytes := model.Backlog()
		m.PeakPackets = max(m.PeakPackets, uint64(packets))
		m.PeakBytes = max(m.PeakBytes, bytes)
	}
}

// Entered counts a packet that entered, of so many bytes from the Ethernet header on.
func (c *Collector) Entered(frame int) {
	c.Counts.Packets++
	c.Counts.Bytes += uint64(frame)
}

// Delivered counts packets that left together at an instant, so many wire bytes
// (impair.WireBytes) altogether. Each took delay and, before that, queued for the
// direction's rate, and was late by so much.
func (c *Collector) Delivered(now time.Duration, packets, wire uint64, delay, queued, late time.Duration) {
	c.Counts.Delivered += packets
	c.delay.record(int64(delay), packets)
	c.queueing.record(int64(queued), packets)
	c.lateness.record(int64(late), packets)
	if late < 0 {
		c.Counts.Early += packets
	}
	c.delivered.add(now, wire*8)
}

// Statistics returns all statistics so far of the direction that model decides for.
func (c *Collector) Statistics(model *impair.Direction) Statistics {
	all := &c.period
	if c.earlier != nil {
		all = new(period)
		all.merge(c.earlier)
		all.merge(&c.period)
	}
	return all.statistics(model.Asked(), model.Replayed(), c.Tolerance)
}

// StatisticsSince returns the statistics since Begin.
func (c *Collector) StatisticsSince(model *impair.Direction) Statistics {
	replayed := model.Replayed()
	if c.earlier != nil {
		replayed = replayed.Sub(c.earlier.Counts.Replayed)
	}
	return c.statistics(model.AskedSince(), replayed, c.Tolerance)
}

// Observe returns the counters so far and the delay by bounds in nanoseconds, which ascend. It
// is for those who ask often: without percentiles, which take Statistics longest, and without
// what is asked for, replayed and late. Neither bounds nor the slice in the answer are to be changed.
func (c *Collector) Observe(bounds []int64) Statistics {
	m := c.counters()
	m.DelayBars = c.delayBars(bounds)
	return m
}

// counters returns the counters so far.
func (c *Collector) counters() Statistics {
	m := c.Counts
	if c.earlier != nil {
		m.merge(&c.earlier.Counts)
	}
	return m
}

// Losses returns how many packets so far were dropped by asked-for loss, and lost for other reasons.
func (c *Collector) Losses() (dropped, lost uint64) {
	m := c.counters()
	return m.Dropped, m.Lost()
}

// delays returns the number of delays so far.
func (c *Collector) delays() uint64 {
	n := c.delay.count()
	if c.earlier != nil {
		n += c.earlier.delay.count()
	}
	return n
}

// Changed returns the last look at which Observe would have returned something else than at the look before, by any bounds: of
// which look is the number of the present one, above 0 and above those before. It takes less time than Observe.
func (c *Collector) Changed(look uint64) uint64 {
	// None of them ever goes down, so that their sum is the same only if all of them are.
	m := c.counters()
	sum := c.delays() + m.PeakPackets + m.PeakBytes
	for _, n := range m.sums() {
		sum += *n
	}
	if c.changed == 0 || sum != c.counted {
		c.counted, c.changed = sum, look
	}
	return c.changed
}

// delayBars returns the delay by bounds. It goes through all that was recorded only if there is more than last time.
func (c *Collector) delayBars(bounds []int64) histogram.Bars {
	if o := c.observed; o != nil && o.bars.Count == c.delays() && slices.Equal(o.bounds, bounds) {
		return o.bars
	}
	c.delay.settle()
	bars := c.delay.buckets.Bars(bounds)
	if c.earlier != nil {
		c.earlier.delay.settle()
		bars.Add(c.earlier.delay.buckets.Bars(bounds))
	}
	c.observed = &observed{bounds, bars}
	return bars
}

func (t *period) statistics(asked impair.Asked, replayed impair.Replayed, tolerance topology.Tolerance) Statistics {
	m := t.Counts
	m.Asked, m.Replayed = asked, replayed
	m.Delay = t.delay.distribution()
	m.Delays = t.delay.bins(&m.Delay)
	m.Queueing = t.queueing.distribution()
	m.Lateness = t.lateness.distribution()
	m.Late = t.late(tolerance)
	m.PeakRate, m.MeanRate = t.delivered.rates()
	return m
}

// Statistics are those of one direction of a link. Packets are wire packets,
// counted as they would be without segmentation offload; those still on their way are in
// Packets only.
type Statistics struct {
	Packets     uint64 `json:"packets,omitzero"`      // that entered
	Bytes       uint64 `json:"bytes,omitzero"`        // of those, from the Ethernet header on, without check sequence
	Delivered   uint64 `json:"delivered,omitzero"`    // copies too
	Dropped     uint64 `json:"dropped,omitzero"`      // by the loss that was asked for
	Bursts      uint64 `json:"bursts,omitzero"`       // of how many series of packets in a row those are
	LostFault   uint64 `json:"lost_fault,omitzero"`   // by a fault that drops
	LostQueue   uint64 `json:"lost_queue,omitzero"`   // no room before the direction's rate
	LostCut     uint64 `json:"lost_cut,omitzero"`     // the direction was cut, for good or by its flapping
	LostDown    uint64 `json:"lost_down,omitzero"`    // the link or an interface was down
	LostOverrun uint64 `json:"lost_overrun,omitzero"` // the engine could not keep up, or had no memory left; of frames that the kernel dropped before the engine saw them, a super-packet counts once

	// Of those that entered:
	Duplicated uint64 `json:"duplicated,omitzero"` // copies made
	Reordered  uint64 `json:"reordered,omitzero"`  // sent before others that had entered earlier
	Corrupted  uint64 `json:"corrupted,omitzero"`
	Marked     uint64 `json:"marked,omitzero"`  // with Congestion Experienced
	Faulted    uint64 `json:"faulted,omitzero"` // met a fault, whatever it did

	PeakPackets uint64 `json:"peak_packets,omitzero"` // the most that was in the queue before the rate, with those in transmission
	PeakBytes   uint64 `json:"peak_bytes,omitzero"`   // likewise, in wire bytes

	Replayed impair.Replayed `json:"replayed,omitzero"`

	Asked  impair.Asked `json:"asked,omitzero"`
	Delay  Distribution `json:"delay_ns,omitzero"` // from the kernel's receive timestamp to the moment after the send, without Queueing
	Delays []Bin        `json:"delays,omitzero"`   // the histogram of Delay, in at most 26 bins of one width
	// DelayBars has Delay by the bounds that Observe was asked for.
	DelayBars histogram.Bars `json:"delay_bars,omitzero"`
	// Pauses are those of the direction's beginning, if that is a port of a packet buffer. The link engine adds them to what Observe returns.
	Pauses   []bufferstats.ClassPause `json:"pauses,omitempty"`
	Queueing Distribution             `json:"queueing_ns,omitzero"` // before the direction's rate: the queue and the packet's own transmission
	Lateness Distribution             `json:"lateness_ns,omitzero"` // of Delay, what exceeds the model's
	Early    uint64                   `json:"early,omitzero"`       // packets delivered before the model has them leave, which are a defect; in Lateness they are 0
	Late     Late                     `json:"late,omitzero"`
	PeakRate float64                  `json:"peak_bps,omitzero"` // delivered over the busiest 100 ms, bits per second with Ethernet framing (impair.WireBytes)
	MeanRate float64                  `json:"mean_bps,omitzero"` // the same from the first to the last packet delivered; 0 if there were not two
}

// Lost counts the packets that were lost other than by asked-for loss.
func (m *Statistics) Lost() uint64 {
	return m.LostQueue + m.LostDown + m.LostCut + m.LostFault + m.LostOverrun
}

// A Distribution summarises durations in nanoseconds. Percentiles are within
// 1/8192 of the true value. It is all zero if Count is.
type Distribution struct {
	Count uint64 `json:"count"`
	Min   int64  `json:"min"`
	P1    int64  `json:"p1"`
	P10   int64  `json:"p10"`
	P50   int64  `json:"p50"`
	P99   int64  `json:"p99"`
	P999  int64  `json:"p999"`
	Max   int64  `json:"max"`
}

// Late counts packets delivered that left later than the limits of a tolerance, each to
// within 1/4096 of the limit.
type Late struct {
	P10 uint64 `json:"p10"` // than Tolerance.DelayP10
	P50 uint64 `json:"p50"` // than Tolerance.Delay
	P99 uint64 `json:"p99"` // than Tolerance.DelayP99
}

// late counts the packets that left later than the limits of a tolerance.
func (t *period) late(limits topology.Tolerance) Late {
	above := func(limit time.Duration) uint64 { return t.lateness.above(int64(limit)) }
	return Late{P10: above(limits.DelayP10), P50: above(limits.Delay), P99: above(limits.DelayP99)}
}

// A Bin counts the durations from From on and below the next bin's. The first also counts
// those below it, and the last those above.
type Bin struct {
	From  int64  `json:"from_ns"`
	Count uint64 `json:"count"`
}
