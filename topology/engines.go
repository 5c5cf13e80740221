package topology

import "time"

// maxNetemJitter is the most jitter that netem has: 31 bits of ns (net/sched/
// sch_netem.c, tabledist).
const maxNetemJitter = 2 * time.Second

// Check says what of an impairment the engine cannot do, by an *ImpairmentError,
// or nil. offload is the link's. Linkem can do whatever Impairment.Check has found
// right.
func (e Engine) Check(i Impairment, offload bool) error {
	if e != Netem {
		return nil
	}
	if err := i.checkNetem(offload); err != nil {
		return err
	}
	return nil
}

// checkNetem refuses what the kernel's netem does not do at all, or not as
// Impairment means it.
func (i Impairment) checkNetem(offload bool) *ImpairmentError {
	const linkem = "engine: linkem"
	lacks := func(key, what string) *ImpairmentError {
		return wrong(key, linkem, "netem has no %s", what)
	}
	switch {
	case i.Jitter.Distribution == Sampled:
		return lacks("jitter", "jitter by samples")
	case i.Jitter.Spread > maxNetemJitter:
		return wrong("jitter", "at most 2s, or "+linkem, "netem has no jitter of %s", FormatDuration(i.Jitter.Spread))
	case i.Loss.Every != 0:
		return lacks("loss", "loss of every n-th packet")
	case len(i.Loss.Packets) > 0:
		return lacks("loss", "loss at chosen places")
	case i.Duplicate != 0:
		return lacks("duplicate", "duplication whose copy follows right behind")
	case i.Reorder != Reorder{}:
		return lacks("reorder", "reordering by a number of packets: it sends some without any delay")
	case i.Corrupt != Corrupt{}:
		return lacks("corrupt", "corruption of the payload alone")
	case i.Burst != 0:
		return lacks("burst", "burst ahead of its rate")
	case i.ECN != ECN{}:
		return lacks("ecn", "marking between two thresholds")
	case i.Queue.Bytes != 0:
		return lacks("queue", "limit of its queue in bytes")
	case i.Queue.Packets != 0 && i.Delay > 0:
		return wrong("queue", "no delay, or "+linkem, "netem counts packets on their way against the limit of its queue").with("delay")
	case i.Cut:
		return lacks("cut", "cut")
	case i.Flap != Flap{}:
		return lacks("flap", "flap")
	case len(i.Faults) > 0:
		return lacks("faults", "faults: it knows nothing of RDMA")
	case offload && i.Loss.Rate != 0:
		return wrong("loss", "offload: off, or "+linkem, "netem loses super-packets whole")
	case offload && i.Rate != 0:
		return wrong("rate", "offload: off, or "+linkem, "netem counts the Ethernet framing of a super-packet once")
	}
	return nil
}
