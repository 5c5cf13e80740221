package main

import "time"

// A pace says how fast and how much is measured, and what may be missed by it.
type pace struct {
	delayPerSecond int // packets
	delayWarmUp    int // packets that do not count
	delayCount     int // that do
	delayRounds    int
	medianLimit    time.Duration // that an engine may add to a delay
	p99Limit       time.Duration
	// p10Limit, if not 0, is what an engine may add to a tenth of the delays, and stands
	// for the two others: a busy machine makes packets late, but not nine of ten.
	p10Limit time.Duration

	lossCount     int // packets
	lossPerSecond int
	lossSegments  int // packets that are sent as one
	// burstOff bounds the deviation of the mean length of bursts from what was asked. The
	// mean of the 200 bursts among 10,000 packets has a standard deviation of 6.3 %.
	burstOff float64

	rates    []uint64 // of RDMA, bits per second
	tcpRates []uint64
	// windows, if not 0, is in how many parts the time of a rate is taken, of which the
	// best is held to be not too slow.
	windows int
	settle  time.Duration // by how much the last packets may be late

	parts []string // those that are measured unless others are asked for; nil: all
}

// The paces: of a machine that has processors; of one that has them but is busy, also
// for those in a hurry, with what that leaves to be judged; and of one that is emulated,
// where everything takes some thirty times as long and threads wake up milliseconds late.
var (
	brief = pace{
		delayPerSecond: 200, delayWarmUp: 20, delayCount: 400, delayRounds: 1, // so few that none leaves with another
		p10Limit:  200 * time.Microsecond,
		lossCount: 200_000, lossPerSecond: 100_000, lossSegments: 50, burstOff: 0.05,
		rates: []uint64{10e6, 100e6}, tcpRates: []uint64{10e6, 100e6}, windows: 8,
		settle: 100 * time.Millisecond,
		parts:  []string{"delay", "loss", "burst", "rate", "tcp", "fate", "memory"},
	}
	full = pace{
		delayPerSecond: 10_000, delayWarmUp: 3_000, delayCount: 20_000, delayRounds: 3,
		medianLimit: 30 * time.Microsecond, p99Limit: 150 * time.Microsecond,
		lossCount: 1_000_000, lossPerSecond: 400_000, lossSegments: 50, burstOff: 0.05,
		rates: []uint64{10e6, 100e6, 1e9, 10e9}, tcpRates: []uint64{10e6, 100e6, 1e9, 5e9},
		settle: 100 * time.Millisecond,
	}
	slow = pace{
		delayPerSecond: 100, delayWarmUp: 50, delayCount: 300, delayRounds: 1,
		medianLimit: 10 * time.Millisecond, p99Limit: 200 * time.Millisecond,
		lossCount: 10_000, lossPerSecond: 1_000, lossSegments: 10, burstOff: 0.21,
		rates: []uint64{1e6, 10e6}, tcpRates: []uint64{1e6, 10e6},
		settle: time.Second,
	}
)
