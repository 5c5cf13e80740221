package linkstats

import "time"

// A meter measures a rate: overall, and over the busiest stretch of meterSlots
// slots.
type meter struct {
	slots       [meterSlots]uint64 // bits; slot of an instant t is t/meterSlot modulo meterSlots
	slot        int64              // number of the latest slot
	sum         uint64             // over slots
	peak        uint64             // highest sum so far
	total       uint64             // bits after the first instant
	first, last time.Duration
	begun       bool
}

const (
	meterSlots = 10
	meterSlot  = 10 * time.Millisecond
)

// add counts bits at an instant that never goes back.
func (m *meter) add(at time.Duration, bits uint64) {
	slot := int64(at / meterSlot)
	if !m.begun {
		m.begun, m.first, m.slot = true, at, slot
	} else if at > m.first {
		m.total += bits // what came at the first instant had been on its way before
	}
	m.last = at
	for skipped := 0; m.slot < slot && skipped < meterSlots; skipped++ {
		m.slot++
		m.sum -= m.slots[m.slot%meterSlots]
		m.slots[m.slot%meterSlots] = 0
	}
	m.slot = slot
	m.slots[slot%meterSlots] += bits
	m.sum += bits
	m.peak = max(m.peak, m.sum)
}

// merge adds what another has measured later.
func (m *meter) merge(later *meter) {
	if !later.begun {
		return
	}
	if !m.begun {
		*m = *later
		return
	}
	// Bytes that came at the later one's first instant are in its slots alone.
	m.total += later.total
	m.last, m.peak = later.last, max(m.peak, later.peak)
}

// rates are in bits per second.
func (m *meter) rates() (peak, mean float64) {
	peak = float64(m.peak) / (meterSlots * meterSlot).Seconds()
	if m.last > m.first {
		mean = float64(m.total) / (m.last - m.first).Seconds()
	}
	return peak, mean
}
