package impair

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// Asked holds what the settings asked for, averaged over the packets that met
// them. Packets that found the direction down or cut met none.
type Asked struct {
	Packets   uint64        `json:"packets"`              // that met the settings
	Delay     time.Duration `json:"delay_ns"`             // mean, with that of samples of jitter
	Jitter    time.Duration `json:"jitter_ns"`            // mean spread; of samples the standard deviation
	Reach     time.Duration `json:"jitter_reach_ns"`      // mean of half the range from the 1st to the 99th percentile of jitter
	Loss      float64       `json:"loss"`                 // mean probability; it is 1 for packets whose loss was certain by their place
	Burst     float64       `json:"loss_burst,omitempty"` // packets lost at random over how often some were in a row; 0 if no setting had such losses
	Duplicate float64       `json:"duplicate,omitempty"`  // mean probability, without faults
	Reorder   float64       `json:"reorder,omitempty"`    // mean probability
	Corrupt   float64       `json:"corrupt,omitempty"`    // mean probability, without faults
	Rate      uint64        `json:"rate_bps"`             // mean over the packets that met a rate, bits per second; 0 if none did
}

// An account sums up what Asked is the mean of.
type account struct {
	packets uint64 // that met the present settings
	certain uint64 // of those, the ones whose loss was certain
	before  sums   // of the packets that met earlier settings since Begin
	earlier sums   // of the packets before Begin
}

type sums struct {
	packets, rated                    uint64
	bursty                            bool // some losses were to come in a row
	delay, jitter, reach, loss        float64
	lost, rows                        float64 // packets lost at random, and rows of them
	duplicate, reorder, corrupt, rate float64
}

// add adds n packets that met settings, the loss of some of which was certain.
func (s *sums) add(i *topology.Impairment, packets, certain uint64) {
	n := float64(packets)
	delay, jitter := float64(i.Delay), float64(i.Jitter.Spread)
	if i.Jitter.Distribution == topology.Sampled {
		var mean float64
		mean, jitter = moments(i.Jitter.Samples)
		delay += mean
	}
	s.packets += packets
	s.delay += n * delay
	s.jitter += n * jitter
	s.reach += n * float64(reach(i.Jitter))
	s.loss += float64(packets-certain)*i.Loss.Rate + float64(certain)
	s.duplicate += n * i.Duplicate
	s.reorder += n * i.Reorder.Probability
	s.corrupt += n * i.Corrupt.Probability
	lost := n * i.Loss.Rate
	s.lost += lost
	if i.Loss.Burst > 0 {
		s.bursty = true
		s.rows += lost / i.Loss.Burst
	} else {
		s.rows += lost * (1 - i.Loss.Rate) // each for itself, some of them in a row all the same
	}
	if i.Rate > 0 {
		s.rated += packets
		s.rate += n * float64(i.Rate)
	}
}

// AskedBy returns what settings ask of a packet.
func AskedBy(settings *topology.Impairment) Asked {
	var s sums
	s.add(settings, 1, 0)
	a := s.mean()
	a.Packets = 0
	return a
}

// merge adds what other has added up.
func (s *sums) merge(other *sums) {
	s.packets += other.packets
	s.rated += other.rated
	s.bursty = s.bursty || other.bursty
	s.delay += other.delay
	s.jitter += other.jitter
	s.reach += other.reach
	s.loss += other.loss
	s.lost += other.lost
	s.rows += other.rows
	s.duplicate += other.duplicate
	s.reorder += other.reorder
	s.corrupt += other.corrupt
	s.rate += other.rate
}

// close ends the account of settings.
func (a *account) close(settings *topology.Impairment) {
	a.before.add(settings, a.packets, a.certain)
	a.packets, a.certain = 0, 0
}

// begin ends the account of all settings so far.
func (a *account) begin(settings *topology.Impairment) {
	a.close(settings)
	a.earlier.merge(&a.before)
	a.before = sums{}
}

// Asked returns the mean of what was asked of the packets so far; before the first, the
// settings.
func (d *Direction) Asked() Asked {
	s := d.asked.earlier
	s.merge(&d.asked.before)
	return d.sum(s)
}

// AskedSince returns it for the packets since Begin.
func (d *Direction) AskedSince() Asked { return d.sum(d.asked.before) }

// sum adds the packets that met the present settings.
func (d *Direction) sum(s sums) Asked {
	s.add(&d.settings, d.asked.packets, d.asked.certain)
	if s.packets == 0 {
		return AskedBy(&d.settings)
	}
	return s.mean()
}

func (s *sums) mean() Asked {
	n := float64(s.packets)
	a := Asked{
		Packets:   s.packets,
		Delay:     time.Duration(math.Round(s.delay / n)),
		Jitter:    time.Duration(math.Round(s.jitter / n)),
		Reach:     time.Duration(math.Round(s.reach / n)),
		Loss:      s.loss / n,
		Duplicate: s.duplicate / n,
		Reorder:   s.reorder / n,
		Corrupt:   s.corrupt / n,
	}
	if s.bursty && s.rows > 0 {
		a.Burst = s.lost / s.rows
	}
	if s.rated > 0 {
		a.Rate = uint64(math.Round(s.rate / float64(s.rated)))
	}
	return a
}
