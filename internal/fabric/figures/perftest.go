package figures

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// This file is perftest: ib_write_bw, ib_send_lat and the others. Each prints a line that
// begins with #bytes and names the columns with their units, and below it a line of
// numbers for each size.

// take takes the number below a title. The units of bandwidth are MB of 2^20 bytes, which newer versions call MiB, and Gb
// of 10^9 bits.
func (l *perftestLine) take(title string, v float64) {
	switch title {
	case "#bytes":
		l.size = v
	case "#iterations":
		l.messages = v
	case "BW average[MB/sec]", "BW average[MiB/sec]":
		l.gbps = v * 8 * (1 << 20) / 1e9
	case "BW average[Gb/sec]":
		l.gbps = v
	case "MsgRate[Mpps]":
		l.rate = v * 1e6
	case "tps average":
		l.rate = v
	case "t_min[usec]":
		l.latency.Min = v
	case "t_max[usec]":
		l.latency.Max = v
	case "t_typical[usec]":
		l.latency.P50 = v // the median
	case "t_avg[usec]":
		l.latency.Mean = v
	case "99% percentile[usec]":
		l.latency.P99 = v
	case "99.9% percentile[usec]":
		l.latency.P999 = v
	}
}

// A perftestLine is the numbers of one size.
type perftestLine struct {
	size, messages float64
	gbps, rate     float64 // 10^9 bits and messages per second
	latency        report.Latency
}

// perftestTitle is one title: titles have single spaces within, and none of them but those
// of bandwidth, percentiles and transactions has any.
const perftestTitle = `BW (?:peak|average)\[[^\]]*\]|[0-9.]+% percentile\[[^\]]*\]|tps average|\S+`

func perftest(output string) (f Figures, known bool) {
	var columns []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#bytes") {
			columns = regexp.MustCompile(perftestTitle).FindAllString(line, -1)
			continue
		}
		words := strings.Fields(line)
		if i := slices.Index(columns, "t_stdev[usec]"); i >= 0 && i < len(words) {
			words[i] = "0" // it is not read, and may be -nan: perftest rounds a sum of squares below zero
		}
		values, ok := numbers(words)
		if columns == nil || !ok || len(values) < len(columns) { // the processor's use may stand behind
			continue
		}
		var l perftestLine
		for i, title := range columns {
			l.take(title, values[i])
		}
		l.addTo(&f)
	}
	if len(f.Steps) == 0 {
		return Figures{}, false
	}
	if len(f.Steps) == 1 {
		f.Steps = nil
	}
	return f, true
}

// addTo adds a size to the figures: the messages add up, and the rest is that of the last
// size, the largest.
func (l *perftestLine) addTo(f *Figures) {
	s := report.Step{Size: uint64(l.size), Messages: uint64(l.messages), Gbps: l.gbps, Latency: l.latency}
	if l.rate > 0 {
		s.Seconds = l.messages / l.rate
	}
	f.Steps = append(f.Steps, s)
	f.Messages += s.Messages
	f.Bytes += s.Messages * s.Size
	f.Gbps, f.MessageRate, f.Latency = l.gbps, l.rate, l.latency
}
