package adapter

import (
	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/topology"
)

// dataDSCP is the DSCP of connections that hear marks where a topology sets none: AF31, which RoCE
// networks map to their lossless priority (roce.md 14.4).
const dataDSCP = 26

// tenBits is the unit of shares that mlx5 has as numbers of ten bits.
const tenBits = 1024

// A preset has the parameters of a sender and of a receiver that belong together.
type preset struct {
	sender   func() congestion.DCQCN
	receiver func() congestion.CNP
}

var presets = map[topology.Preset]preset{
	topology.PresetConnectX: {congestion.ConnectX, congestion.ConnectXCNP},
	topology.PresetPaper:    {congestion.Paper, congestion.PaperCNP},
}

var algorithms = map[topology.Congestion]congestion.Algorithm{
	topology.CongestionWindow: congestion.Window,
	topology.CongestionNone:   congestion.None,
	topology.CongestionDCQCN:  congestion.WithDCQCN,
	topology.CongestionDCTCP:  congestion.WithDCTCP,
	topology.CongestionBDP:    congestion.WithBDP,
}

var scopes = map[topology.CNPScope]congestion.Scope{
	topology.CNPPerQP:      congestion.PerQP,
	topology.CNPPerAddress: congestion.PerAddress,
	topology.CNPPerPort:    congestion.PerPort,
}

// congestionControl returns the congestion control of an adapter.
func congestionControl(set *topology.Adapter) congestion.Config {
	var c congestion.Config
	if set.Congestion != nil {
		c.Algorithm = algorithms[*set.Congestion]
	}
	switch c.Algorithm {
	case congestion.WithDCQCN:
		sender := topology.DCQCN{Preset: topology.PresetConnectX}
		if set.DCQCN != nil {
			sender = *set.DCQCN
		}
		p := presets[sender.Preset]
		c.DCQCN, c.CNP = p.sender(), p.receiver()
		setSender(&c.DCQCN, &sender)
	case congestion.WithDCTCP:
		c.DCTCP, c.CNP = congestion.DefaultDCTCP(), congestion.DCTCPCNP()
		if set.DCTCP != nil {
			replace(&c.DCTCP.G, set.DCTCP.G)
			replace(&c.DCTCP.RTT, set.DCTCP.RTT)
		}
	case congestion.WithBDP:
		if set.BDP != nil {
			replace(&c.BDP.RTT, set.BDP.RTT)
		}
	}
	if c.HearsMarks() {
		c.DSCP = dataDSCP
	}
	if set.CNP != nil {
		setReceiver(&c.CNP, set.CNP)
	}
	replace(&c.DSCP, set.DSCP)
	return c
}

func setSender(p *congestion.DCQCN, set *topology.DCQCN) {
	if set.ClampTgtRate != nil {
		p.ClampTgtRate = *set.ClampTgtRate
	}
	if set.ClampTgtRateAfterTimeInc != nil {
		p.ClampTgtRateAfterTimeInc = *set.ClampTgtRateAfterTimeInc
	}
	replace(&p.RPGTimeReset, set.RPGTimeReset)
	replace(&p.RPGByteReset, set.RPGByteReset)
	replace(&p.RPGThreshold, set.RPGThreshold)
	replace(&p.RPGMaxRate, set.RPGMaxRate)
	replace(&p.RPGAIRate, set.RPGAIRate)
	replace(&p.RPGHAIRate, set.RPGHAIRate)
	replace(&p.RPGGD, set.RPGGD)
	replace(&p.RPGMinDecFac, set.RPGMinDecFac)
	replace(&p.RPGMinRate, set.RPGMinRate)
	if set.RPGMinRate == nil && p.RPGMaxRate != 0 { // a preset gives way to what is set
		p.RPGMinRate = min(p.RPGMinRate, p.RPGMaxRate)
	}
	replace(&p.RateToSetOnFirstCNP, set.RateToSetOnFirstCNP)
	if set.DCETCPG != nil { // mlx5 has what alpha keeps of itself
		p.DCETCPG = (tenBits - float64(*set.DCETCPG)) / tenBits
	}
	replace(&p.DCETCPRTT, set.DCETCPRTT)
	replace(&p.RateReduceMonitorPeriod, set.RateReduceMonitorPeriod)
	if set.InitialAlphaValue != nil {
		p.InitialAlphaValue = float64(*set.InitialAlphaValue) / tenBits
	}
	if set.SlowRestart != nil {
		p.SlowRestart = *set.SlowRestart
	}
}

func setReceiver(p *congestion.CNP, set *topology.CNP) {
	replace(&p.DSCP, set.DSCP)
	replace(&p.MinTime, set.MinTime)
	replace(&p.Delay, set.Delay)
	if set.Per != nil {
		p.Per = scopes[*set.Per]
	}
}

type number interface {
	~int | ~int64 | ~uint8 | ~uint32 | ~uint64 | ~float64
}

// replace gives a parameter the value that a topology sets, which has room in it.
func replace[P, S number](p *P, set *S) {
	if set != nil {
		*p = P(*set)
	}
}
