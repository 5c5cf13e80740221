package congestion

import (
	"fmt"
	"math"
	"time"
)

// A DCQCN has the parameters of a reaction point, under the names that mlx5 gives them. Rates are
// in bits per second.
type DCQCN struct {
	// ClampTgtRate has each cut set the target rate to the rate before it; else only a cut that
	// follows an increase by the timer does, if ClampTgtRateAfterTimeInc says so.
	ClampTgtRate             bool
	ClampTgtRateAfterTimeInc bool
	RPGTimeReset             time.Duration // from one increase by the timer to the next
	RPGByteReset             int64         // bytes from one increase by the byte counter to the next; 0: there is none
	RPGThreshold             int           // increases of fast recovery
	RPGMaxRate               float64       // 0: the line's
	RPGAIRate                float64       // added to the target by an additive increase
	RPGHAIRate               float64       // likewise by a hyper increase
	RPGGD                    int           // alpha is divided by 2 to the power of RPGGD - 10 for a cut: 11 is alpha/2
	RPGMinDecFac             float64       // share of the rate that a cut leaves at least, 0 to 1
	RPGMinRate               float64
	RateToSetOnFirstCNP      float64       // 0: the rate stays
	DCETCPG                  float64       // weight of a new sample in alpha: 1/256 in the paper
	DCETCPRTT                time.Duration // from one update of alpha to the next
	RateReduceMonitorPeriod  time.Duration // from one cut to the next at least; 0: each CNP cuts
	InitialAlphaValue        float64       // 0 to 1
	// SlowRestart has a packet that is missing, or not acknowledged in time, slow the sender down as
	// a CNP does (mlx5's roce_slow_restart; congestion.md a).
	SlowRestart bool
}

const mbit = 1e6 // bits per second

// ConnectX returns the parameters that NVIDIA documents as the defaults of ConnectX adapters
// (roce.md 14.3). Their receivers' part is ConnectXCNP.
//
// Its dce_tcp_g, 1019, is read as the weight of the old value in 1024ths, which makes g nearly the
// paper's. Descriptions call it the weight of the sample, but with a default of 64; with 1019 alpha
// would be no average any more.
//
// There is no byte counter in it, although rpg_byte_reset is 32767 there. The unit of that number
// is uncertain: it is said to be bytes, but a former default of 150 suggests the 150,000 bytes of
// 802.1Qau, and so thousands. 32767 is all that its 15 bits hold. 32 MB take longer than the timer
// on each line up to 800 Gb/s, so that the counter would hardly do more than hold off hyper
// increases. The reference simulator has no byte counter, and its figures judge this one
// (congestion.md d, e).
func ConnectX() DCQCN {
	return DCQCN{
		ClampTgtRateAfterTimeInc: true,
		RPGTimeReset:             300 * time.Microsecond,
		RPGThreshold:             1,
		RPGAIRate:                5 * mbit,
		RPGHAIRate:               50 * mbit,
		RPGGD:                    11,
		RPGMinDecFac:             0.5,
		RPGMinRate:               1 * mbit,
		DCETCPG:                  (1024 - 1019) / 1024.0, // stored as the weight of the old value
		DCETCPRTT:                1 * time.Microsecond,
		RateReduceMonitorPeriod:  4 * time.Microsecond,
		InitialAlphaValue:        1023 / 1024.0,
	}
}

// Paper returns the parameters of the DCQCN paper (SIGCOMM'15). Its receivers' part is PaperCNP.
// The paper gives no hyper increase and no least rate: the first is that of the reference
// simulator with the paper's timers (congestion.md d), the second that of ConnectX.
func Paper() DCQCN {
	return DCQCN{
		ClampTgtRate:      true,
		RPGTimeReset:      55 * time.Microsecond,
		RPGByteReset:      10e6,
		RPGThreshold:      5,
		RPGAIRate:         40 * mbit,
		RPGHAIRate:        200 * mbit,
		RPGGD:             11,
		RPGMinRate:        1 * mbit,
		DCETCPG:           1.0 / 256,
		DCETCPRTT:         55 * time.Microsecond,
		InitialAlphaValue: 1,
	}
}

// Validate returns an error that names the first parameter that makes no sense, and its range.
// The ranges of rpg_threshold and rpg_gd are those of mlx5. Times and rates may be anything that
// has a meaning: slow links need longer times, and fast ones higher rates, than the 17 bits of mlx5
// hold.
func (p *DCQCN) Validate() error {
	for _, c := range [...]struct {
		valid       bool
		name        string
		value       any
		expectation string
	}{
		{p.RPGTimeReset > 0, "rpg_time_reset", p.RPGTimeReset, "more than 0"},
		{p.RPGByteReset >= 0, "rpg_byte_reset", p.RPGByteReset, "0, for none, or a number of bytes"},
		{within(p.RPGThreshold, 1, 31), "rpg_threshold", p.RPGThreshold, "1 to 31"},
		{isRate(p.RPGMaxRate), "rpg_max_rate", p.RPGMaxRate, "0, for that of the line, or a rate in bits per second"},
		{isRate(p.RPGAIRate), "rpg_ai_rate", p.RPGAIRate, "a rate in bits per second"},
		{isRate(p.RPGHAIRate), "rpg_hai_rate", p.RPGHAIRate, "a rate in bits per second"},
		{within(p.RPGGD, 10, 11), "rpg_gd", p.RPGGD, "10 or 11"},
		{within(p.RPGMinDecFac, 0, 1), "rpg_min_dec_fac", p.RPGMinDecFac, "a share of the rate from 0 to 1"},
		{isRate(p.RPGMinRate) && p.RPGMinRate >= 1, "rpg_min_rate", p.RPGMinRate, "1 bit per second or more"},
		{p.RPGMaxRate == 0 || p.RPGMinRate <= p.RPGMaxRate, "rpg_min_rate", p.RPGMinRate, "no more than rpg_max_rate"},
		{isRate(p.RateToSetOnFirstCNP), "rate_to_set_on_first_cnp", p.RateToSetOnFirstCNP, "0, to leave it, or a rate in bits per second"},
		{within(p.DCETCPG, 0, 1), "dce_tcp_g", p.DCETCPG, "a weight of a new sample from 0 to 1 (mlx5's number n means (1024 - n)/1024)"},
		{p.DCETCPRTT > 0, "dce_tcp_rtt", p.DCETCPRTT, "more than 0"},
		{p.RateReduceMonitorPeriod >= 0, "rate_reduce_monitor_period", p.RateReduceMonitorPeriod, "0, to cut with each CNP, or more"},
		{within(p.InitialAlphaValue, 0, 1), "initial_alpha_value", p.InitialAlphaValue, "0 to 1 (mlx5's number n means n/1024)"},
	} {
		if !c.valid {
			return fmt.Errorf("congestion: %s is %v, want %s", c.name, c.value, c.expectation)
		}
	}
	return nil
}

// within reports whether a number is in a range; not a number is not.
func within[N int | float64](n, low, high N) bool { return low <= n && n <= high }

// isRate reports whether a number is a rate.
func isRate(r float64) bool { return within(r, 0, math.MaxFloat64) }
