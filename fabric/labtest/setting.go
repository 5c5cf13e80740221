package labtest

import (
	"strconv"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// Sizes, in bytes, and rates, in bits per second.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30

	Kbit = 1_000
	Mbit = 1_000_000
	Gbit = 1_000_000_000
)

// A Setting is one key of a link, a node or another part of a topology, with its value.
type Setting struct{ key, value string }

// Set is any key with its value as a topology file has them in one line, for instance
// Set("loss", "{rate: 1%, burst: 5}"), Set("ecn", "{min: 100KiB, max: 400KiB}") or
// Set("cpu", "0.5"). docs/topology.md has all there are.
func Set(key, value string) Setting { return Setting{key, value} }

// Delay is the delay of packets, one way.
func Delay(d time.Duration) Setting { return Setting{"delay", topology.FormatDuration(d)} }

// Jitter is the most by which the delay of a packet may differ from Delay.
func Jitter(d time.Duration) Setting { return Setting{"jitter", topology.FormatDuration(d)} }

// Loss is the fraction of packets that are lost, 0 to 1.
func Loss(fraction float64) Setting { return Setting{"loss", topology.FormatPercent(fraction)} }

// Duplicate is the fraction of packets that arrive twice, 0 to 1.
func Duplicate(fraction float64) Setting {
	return Setting{"duplicate", topology.FormatPercent(fraction)}
}

// Reorder is the fraction of packets that overtake others, 0 to 1.
func Reorder(fraction float64) Setting { return Setting{"reorder", topology.FormatPercent(fraction)} }

// Corrupt is the fraction of packets in which bits change, 0 to 1.
func Corrupt(fraction float64) Setting { return Setting{"corrupt", topology.FormatPercent(fraction)} }

// Rate is the number of bits that pass in a second, with Ethernet framing.
func Rate(bits uint64) Setting { return Setting{"rate", topology.FormatRate(bits)} }

// Queue bounds the bytes that wait before a Rate.
func Queue(bytes uint64) Setting { return Setting{"queue", topology.FormatSize(bytes)} }

// MTU is the most bytes of an IP packet, of a link of a topology.
func MTU(bytes int) Setting { return Setting{"mtu", strconv.Itoa(bytes)} }

// change returns the change of a link that settings make.
func change(settings []Setting) (topology.Change, error) {
	texts := make([]string, len(settings))
	for i, s := range settings {
		texts[i] = s.key + "=" + s.value
	}
	return topology.ParseChange(readFile, texts)
}
