package topology

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of Reorder and Corrupt: the model has so much room per packet.
const (
	MaxReorderDepth = 256 // packets that one overtakes
	MaxCorruptBits  = 8   // bits flipped in a packet
)

// Bounds of the rest of an Impairment. Like the ranges of values, they refuse what
// cannot work or is surely a slip.
const (
	maxDelay   = time.Minute // also of jitter, samples and faults
	maxSamples = 1 << 14
	maxBurst   = 1e6 // packets lost in a row
	maxPlaces  = 1 << 12
	maxRate    = 1e12 // bits per second
	maxBytes   = 1 << 40
	maxPackets = 1 << 30
	minQueue   = 1 << 10 // bytes: what holds no packet passes none
	minPeriod  = time.Millisecond
	maxPeriod  = 24 * time.Hour
	maxFaults  = 64
	max24      = 1<<24 - 1 // of QP numbers and PSNs
)

// An ImpairmentError is one thing wrong with an Impairment.
type ImpairmentError struct {
	Keys     []string // of the file, what is wrong first; others have to do with it
	Found    string
	Expected string
}

// Error returns the thing found and the thing expected, on one line.
func (e *ImpairmentError) Error() string { return e.Found + ", expected " + e.Expected }

// Check says what is wrong with an impairment, by an *ImpairmentError, or nil.
// The model in package impair can do all that passes.
func (i Impairment) Check() error {
	for _, check := range []func() *ImpairmentError{i.checkDelay, i.checkLoss, i.checkReorder, i.checkRate, i.checkFlap, i.checkFaults} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// wrong is an ImpairmentError about a key, with what was found formatted.
func wrong(key, expected, format string, args ...any) *ImpairmentError {
	return &ImpairmentError{[]string{key}, fmt.Sprintf(format, args...), expected}
}

// with adds keys that the error has to do with, too.
func (e *ImpairmentError) with(keys ...string) *ImpairmentError {
	e.Keys = append(e.Keys, keys...)
	return e
}

func (i Impairment) checkDelay() *ImpairmentError {
	j := i.Jitter
	switch {
	case i.Delay < 0 || i.Delay > maxDelay:
		return wrong("delay", "0s to 1m", "delay %v is out of range", i.Delay)
	case j.Spread < 0 || j.Spread > maxDelay:
		return wrong("jitter", "0s to 1m", "jitter %v is out of range", j.Spread)
	case !slices.Contains([]Distribution{"", Uniform, Normal, Pareto, Sampled}, j.Distribution):
		return wrong("jitter", "uniform, normal, pareto or samples", "jitter has the distribution %q", j.Distribution)
	case j.Distribution != Sampled && len(j.Samples) > 0:
		return wrong("jitter", "one of them", "jitter has samples and the distribution %q", j.Distribution)
	case j.Distribution == Sampled && j.Spread != 0:
		return wrong("jitter", "one of them", "jitter has samples and a spread")
	case j.Distribution == Sampled && (len(j.Samples) == 0 || len(j.Samples) > maxSamples):
		return wrong("jitter", fmt.Sprintf("1 to %d", maxSamples), "jitter has %d samples", len(j.Samples))
	case j.Spread > i.Delay:
		// Packets would have to arrive before they were sent.
		return wrong("jitter", "at most the delay", "jitter %s exceeds delay %s", FormatDuration(j.Spread), FormatDuration(i.Delay)).with("delay")
	}
	if j.Distribution == Sampled {
		least, most := slices.Min(j.Samples), slices.Max(j.Samples)
		switch {
		case most > maxDelay:
			return wrong("jitter", "at most 1m", "jitter has the sample %v", most)
		case least < -i.Delay:
			return wrong("jitter", "at least minus the delay", "jitter has the sample %s with delay %s", formatSigned(least), FormatDuration(i.Delay)).with("delay")
		}
	}
	return nil
}

func (i Impairment) checkLoss() *ImpairmentError {
	l := i.Loss
	switch {
	case !isProbability(l.Rate):
		return wrong("loss", "0 to 1", "loss %v is out of range", l.Rate)
	case l.Burst != 0 && !(l.Burst >= 1 && l.Burst <= maxBurst):
		return wrong("loss", "1 to 1000000 packets", "loss has bursts of %v", l.Burst)
	case l.Burst != 0 && l.Rate == 0:
		return wrong("loss", "a rate above 0%", "loss in bursts of %v has no rate", l.Burst)
	case l.Burst != 0 && l.Rate > l.Burst/(l.Burst+1):
		// Between two bursts at least one packet arrives.
		return wrong("loss", fmt.Sprintf("at most %.4g%%, or longer bursts", 100*l.Burst/(l.Burst+1)),
			"loss %s cannot come in bursts of %v", FormatPercent(l.Rate), l.Burst)
	}
	return checkPlaces("loss", "loss has", l.Packets)
}

// checkPlaces says what is wrong with the places of packets in a sequence.
func checkPlaces(key, who string, places []uint64) *ImpairmentError {
	if len(places) > maxPlaces {
		return wrong(key, fmt.Sprintf("at most %d", maxPlaces), "%s %d packets", who, len(places))
	}
	for n, p := range places {
		if p == 0 || n > 0 && p <= places[n-1] {
			return wrong(key, "1 for the first, and ascending", "%s packet %d in the wrong place", who, p)
		}
	}
	return nil
}

func (i Impairment) checkReorder() *ImpairmentError {
	switch {
	case !isProbability(i.Duplicate):
		return wrong("duplicate", "0 to 1", "duplicate %v is out of range", i.Duplicate)
	case !isProbability(i.Reorder.Probability):
		return wrong("reorder", "0 to 1", "reorder %v is out of range", i.Reorder.Probability)
	case i.Reorder.Depth < 0 || i.Reorder.Depth > MaxReorderDepth:
		return wrong("reorder", fmt.Sprintf("0 to %d", MaxReorderDepth), "reorder has the depth %d", i.Reorder.Depth)
	case i.Reorder.Probability > 0 && i.Delay == 0 && len(i.Jitter.Samples) == 0:
		return wrong("reorder", "a delay too: without it there is no packet on its way to overtake", "reorder stands without delay").with("delay")
	case !isProbability(i.Corrupt.Probability):
		return wrong("corrupt", "0 to 1", "corrupt %v is out of range", i.Corrupt.Probability)
	case i.Corrupt.Bits < 0 || i.Corrupt.Bits > MaxCorruptBits:
		return wrong("corrupt", fmt.Sprintf("0 to %d", MaxCorruptBits), "corrupt flips %d bits", i.Corrupt.Bits)
	}
	return nil
}

func (i Impairment) checkRate() *ImpairmentError {
	q, e := i.Queue, i.ECN
	switch {
	case i.Rate > maxRate:
		return wrong("rate", "at most 1tbit", "rate %s is too large", FormatRate(i.Rate))
	case i.Burst > maxBytes:
		return wrong("burst", "at most 1TiB", "burst %s is too large", FormatSize(i.Burst))
	case q.Bytes > 0 && q.Bytes < minQueue || q.Bytes > maxBytes:
		return wrong("queue", "1KiB to 1TiB", "queue %s is out of range", FormatSize(q.Bytes))
	case q.Packets > maxPackets:
		return wrong("queue", fmt.Sprintf("at most %d", maxPackets), "queue of %d packets is too large", q.Packets)
	case !isProbability(e.Probability):
		return wrong("ecn", "0 to 1", "ecn has the probability %v", e.Probability)
	case e.Max < e.Min || e.Max == 0 && e.Probability > 0:
		return wrong("ecn", "max no less than min", "ecn has min %s and max %s", FormatSize(e.Min), FormatSize(e.Max))
	case e.Max > maxBytes:
		return wrong("ecn", "at most 1TiB", "ecn max %s is too large", FormatSize(e.Max))
	case q.Bytes > 0 && e.Max > q.Bytes:
		return wrong("ecn", "at most the queue", "ecn max %s exceeds queue %s", FormatSize(e.Max), FormatSize(q.Bytes)).with("queue")
	}
	return nil
}

func (i Impairment) checkFlap() *ImpairmentError {
	switch f := i.Flap; {
	case f == Flap{}:
		return nil
	case f.Period < minPeriod || f.Period > maxPeriod:
		return wrong("flap", "1ms to 24h", "flap has the period %v", f.Period)
	case f.Down <= 0 || f.Down >= f.Period:
		return wrong("flap", "more than 0ms and less than the period", "flap is down for %v of %v", f.Down, f.Period)
	}
	return nil
}

func (i Impairment) checkFaults() *ImpairmentError {
	if len(i.Faults) > maxFaults {
		return wrong("faults", fmt.Sprintf("at most %d", maxFaults), "there are %d faults", len(i.Faults))
	}
	for _, f := range i.Faults {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

func (f Fault) check() *ImpairmentError {
	m := f.Match
	switch {
	case !slices.Contains([]Action{Drop, Postpone, Double, Corrode}, f.Action):
		return wrong("faults", "drop, delay, duplicate or corrupt", "a fault has the action %q", f.Action)
	case f.Action == Postpone && (f.Delay <= 0 || f.Delay > maxDelay):
		return wrong("faults", "more than 0s, up to 1m", "a fault delays by %v", f.Delay)
	case f.Action != Postpone && f.Delay != 0:
		return wrong("faults", "it only with the action delay", "a fault with the action %s has a delay", f.Action)
	case m.QP != nil && *m.QP > max24:
		return wrong("faults", "at most 0xffffff", "a fault matches QP 0x%x", *m.QP)
	case m.PSN != nil && (m.PSN.First > max24 || m.PSN.Last > max24):
		return wrong("faults", "at most 0xffffff", "a fault matches PSN 0x%x", max(m.PSN.First, m.PSN.Last))
	case m.PSN != nil && m.PSN.First > m.PSN.Last && m.PSN.First-m.PSN.Last < halfPSNs:
		return wrong("faults", fmt.Sprintf("%d-%d", m.PSN.Last, m.PSN.First), "a fault matches PSN %d-%d, which is nearly all, past 0xffffff", m.PSN.First, m.PSN.Last)
	case !isProbability(m.Probability):
		return wrong("faults", "0 to 1", "a fault has the probability %v", m.Probability)
	}
	if err := m.check(); err != nil {
		return err
	}
	if err := checkPlaces("faults", "a fault matches", m.Packets); err != nil {
		return err
	}
	among := func(p uint64) bool { return p%m.Every == 0 }
	if len(m.Packets) > 0 && m.Every > 1 && !slices.ContainsFunc(m.Packets, among) {
		places := strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Packets), " ", ", "), "[]")
		return wrong("faults", fmt.Sprintf("places that are multiples of %d", m.Every),
			"a fault matches nth %s and every %d, which no packet is", places, m.Every)
	}
	return nil
}

// halfPSNs is half of the space of PSNs, in which ranges may go past the end
// (roce.md 5).
const halfPSNs = 1 << 23

// check says if no packet can match.
func (m Match) check() *ImpairmentError {
	among := func(suits func(uint8) bool) bool {
		return len(m.Opcodes) == 0 || slices.ContainsFunc(m.Opcodes, suits)
	}
	switch {
	case len(m.Syndromes) > 0 && len(m.CM) > 0:
		return wrong("faults", "one of them", "a fault matches syndromes and CM messages, which no packet has both")
	case len(m.Syndromes) > 0 && !among(isAcknowledgement):
		return wrong("faults", "ack among the opcodes, or none", "a fault matches syndromes, but no opcode that has them")
	case len(m.CM) > 0 && !among(func(o uint8) bool { return o == udSendOnly }):
		return wrong("faults", "UD_SEND_ONLY among the opcodes, or none", "a fault matches CM messages, but not the opcode that they have")
	case slices.Contains(m.CM, 0):
		return wrong("faults", "those of CM, from 0x10 on", "a fault matches the CM attribute 0")
	case len(m.CM) > 0 && m.QP != nil && *m.QP != 1:
		return wrong("faults", "1, which they all go to, or none", "a fault matches CM messages to QP 0x%x", *m.QP)
	}
	for _, s := range m.Syndromes {
		if !slices.Contains(syndromes, s) {
			return wrong("faults", "ack, nak or rnr", "a fault matches the syndrome %q", s)
		}
	}
	return nil
}

// isProbability also refuses what is no number.
func isProbability(p float64) bool { return p >= 0 && p <= 1 }
