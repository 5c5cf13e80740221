package impair

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
	"github.com/ndklab/ndklab/topology"
)

// maxDelay bounds delays and what is added to them.
const maxDelay = time.Hour

// Check says what is wrong with settings, if anything.
func Check(s topology.Impairment) error {
	if s.Reorder.Probability > 0 && s.Delay == 0 && s.Jitter.Spread == 0 && len(s.Jitter.Samples) == 0 {
		return errors.New("reorder needs a delay or a jitter: without either no packet is on its way to be overtaken")
	}
	for _, err := range []error{
		checkDelay("delay", s.Delay),
		checkJitter(s.Jitter),
		checkLoss(s.Loss),
		checkProbability("duplicate", s.Duplicate),
		checkProbability("reorder", s.Reorder.Probability),
		checkRange("reorder depth", s.Reorder.Depth, MaxDepth),
		checkProbability("corrupt", s.Corrupt.Probability),
		checkRange("corrupt bits", s.Corrupt.Bits, MaxFlips),
		checkQueue(s),
		checkFlap(s.Flap),
	} {
		if err != nil {
			return err
		}
	}
	if len(s.Faults) > math.MaxUint16 {
		return fmt.Errorf("%d faults, more than %d", len(s.Faults), math.MaxUint16)
	}
	for i, f := range s.Faults {
		if err := checkFault(f); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	return nil
}

func checkDelay(what string, d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%s %v is negative", what, d)
	case d > maxDelay:
		return fmt.Errorf("%s %v is more than %v", what, d, maxDelay)
	}
	return nil
}

func checkProbability(what string, p float64) error {
	if !(p >= 0 && p <= 1) { // also refuses NaN
		return fmt.Errorf("%s %v is not between 0 and 1", what, p)
	}
	return nil
}

func checkRange(what string, n, most int) error {
	if n < 0 || n > most {
		return fmt.Errorf("%s %d is not between 0 and %d", what, n, most)
	}
	return nil
}

func checkJitter(j topology.Jitter) error {
	switch j.Distribution {
	case "", topology.Uniform, topology.Normal, topology.Pareto:
		if len(j.Samples) > 0 {
			return fmt.Errorf("jitter has samples, but its distribution is not %s", topology.Sampled)
		}
	case topology.Sampled:
		if len(j.Samples) == 0 {
			return errors.New("jitter has no samples")
		}
		if j.Spread != 0 {
			return fmt.Errorf("jitter has samples, which leave no room for a spread of %v", j.Spread)
		}
	default:
		return fmt.Errorf("jitter has the unknown distribution %q", j.Distribution)
	}
	for _, s := range j.Samples {
		if s < -maxDelay || s > maxDelay {
			return fmt.Errorf("jitter sample %v is beyond %v", s, maxDelay)
		}
	}
	return checkDelay("jitter", j.Spread)
}

func checkLoss(l topology.Loss) error {
	if err := checkProbability("loss", l.Rate); err != nil {
		return err
	}
	if l.Burst != 0 {
		if !(l.Burst >= 1 && l.Burst <= math.MaxUint32) { // also refuses NaN
			return fmt.Errorf("loss in bursts of %v packets in the mean: it has to be 1 or more", l.Burst)
		}
		if l.Rate == 0 || l.Rate == 1 {
			return fmt.Errorf("loss in bursts needs a rate between 0 and 1, not %v", l.Rate)
		}
		if p, _ := gilbert(l.Rate, l.Burst); p > 1 {
			return fmt.Errorf("loss of %v in bursts of %v packets in the mean is impossible: as one packet at least arrives between two bursts, it is at most %.4g", l.Rate, l.Burst, l.Burst/(l.Burst+1))
		}
	}
	return checkPlaces("loss", l.Packets)
}

// checkPlaces checks a list of places of packets.
func checkPlaces(what string, places []uint64) error {
	var before uint64
	for _, n := range places {
		if n == 0 {
			return fmt.Errorf("%s of packet 0: the first packet is 1", what)
		}
		if n <= before {
			return fmt.Errorf("%s of packet %d after packet %d: they have to ascend", what, n, before)
		}
		before = n
	}
	return nil
}

// checkQueue checks what belongs to the rate.
func checkQueue(s topology.Impairment) error {
	q, e := s.Queue, s.ECN
	for _, c := range []struct {
		what string
		set  bool
	}{{"burst", s.Burst > 0}, {"queue", q != topology.Queue{}}, {"ecn", e != topology.ECN{}}} {
		if c.set && s.Rate == 0 {
			return fmt.Errorf("%s without a rate: without one nothing waits", c.what)
		}
	}
	switch {
	case q.Bytes > 0 && q.Bytes < uint64(WireBytes(0)):
		return fmt.Errorf("queue of %d bytes: the shortest packet takes %d", q.Bytes, WireBytes(0))
	case e.Max < e.Min:
		return fmt.Errorf("ecn marks none up to %d bytes, but all from %d on", e.Min, e.Max)
	case q.Bytes > 0 && e.Max > 0 && e.Min >= q.Bytes:
		return fmt.Errorf("ecn marks none up to %d bytes, which a queue of %d never holds", e.Min, q.Bytes)
	}
	return nil
}

func checkFlap(f topology.Flap) error {
	switch {
	case f == topology.Flap{}:
		return nil
	case f.Period <= 0 || f.Period > maxInstant:
		return fmt.Errorf("flap with a period of %v", f.Period)
	case f.Down <= 0 || f.Down >= f.Period:
		return fmt.Errorf("flap is down for %v of each %v: it has to be more than nothing and less than all", f.Down, f.Period)
	}
	return nil
}

func checkFault(f topology.Fault) error {
	switch f.Action {
	case topology.Postpone:
		if f.Delay == 0 {
			return fmt.Errorf("%s by nothing", topology.Postpone)
		}
	case topology.Drop, topology.Double, topology.Corrode:
		if f.Delay != 0 {
			return fmt.Errorf("a delay of %v with the action %s", f.Delay, f.Action)
		}
	default:
		return fmt.Errorf("unknown action %q", f.Action)
	}
	if err := checkDelay("delay", f.Delay); err != nil {
		return err
	}
	m := &f.Match
	if err := checkProbability("probability", m.Probability); err != nil {
		return err
	}
	if m.QP != nil && *m.QP > roce.PSNMask {
		return fmt.Errorf("qp 0x%x has more than 24 bits", *m.QP)
	}
	if m.PSN != nil && max(m.PSN.First, m.PSN.Last) > roce.PSNMask {
		return fmt.Errorf("psn 0x%x has more than 24 bits", max(m.PSN.First, m.PSN.Last))
	}
	for _, name := range m.Syndromes {
		if answerNames[name] == 0 {
			return fmt.Errorf("unknown syndrome %q: there are ack, nak and rnr", name)
		}
	}
	if err := checkMeaning(m); err != nil {
		return err
	}
	return checkPlaces("match", m.Packets)
}

// checkMeaning refuses what no packet is.
func checkMeaning(m *topology.Match) error {
	among := func(suits func(roce.Opcode) bool) bool {
		return len(m.Opcodes) == 0 || slices.ContainsFunc(m.Opcodes, func(o uint8) bool { return suits(roce.Opcode(o)) })
	}
	switch {
	case len(m.Syndromes) > 0 && len(m.CM) > 0:
		return errors.New("no packet has a syndrome and is a CM message")
	case len(m.Syndromes) > 0 && !among(acknowledges):
		return errors.New("a syndrome, but no acknowledgement among the opcodes")
	case len(m.CM) > 0 && !among(func(o roce.Opcode) bool { return o == roce.UDSendOnly }):
		return fmt.Errorf("a CM message, but not its opcode, 0x%02x, among the opcodes", uint8(roce.UDSendOnly))
	case len(m.CM) > 0 && slices.Contains(m.CM, 0):
		return errors.New("no CM message has the attribute 0")
	case len(m.CM) > 0 && m.QP != nil && *m.QP != mad.QPN:
		return fmt.Errorf("a CM message to QP %d: they go to QP %d", *m.QP, mad.QPN)
	}
	return nil
}
