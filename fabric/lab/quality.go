package lab

import (
	"github.com/ndklab/ndklab/fabric/linkem"
	"github.com/ndklab/ndklab/fabric/report"
)

// asked is what was asked of a direction: the mean over the packets that met
// settings, or the present ones if none did. What is zero was not asked for.
func asked(m *linkem.Measured) report.Quality {
	var q report.Quality
	set(&q.DelayUS, microseconds(int64(m.Asked.Delay)), m.Asked.Delay != 0)
	set(&q.JitterUS, microseconds(int64(m.Asked.Jitter)), m.Asked.Jitter != 0)
	set(&q.Loss, m.Asked.Loss, m.Asked.Loss != 0)
	set(&q.RateGbps, float64(m.Asked.Rate)/1e9, m.Asked.Rate != 0)
	return q
}

// achieved is what the engine measured; the kernel measures nothing.
func achieved(m *linkem.Measured) report.Quality {
	var q report.Quality
	set(&q.DelayUS, microseconds(m.Delay.P50), m.Delay.Count > 0)
	set(&q.JitterUS, microseconds(m.Delay.P99-m.Delay.P1)/2, m.Delay.Count > 0)
	if met := m.Asked.Packets; met > 0 {
		set(&q.Loss, float64(m.Dropped)/float64(met), true)
		set(&q.RateGbps, m.PeakRate/1e9, true)
	}
	return q
}

func set(field **float64, value float64, known bool) {
	if known {
		*field = &value
	}
}

func microseconds(ns int64) float64 { return float64(ns) / 1000 }
