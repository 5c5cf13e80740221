package topology

import (
	"fmt"
	"time"
)

// This file is conditions on what is measured, ">= 200mbit", which checks and the
// timeline have.

// A condition is a relation and a value.
type condition struct {
	relation string
	value    float64
	text     string
}

// of is the bound of a metric.
func (c condition) of(m Metric) Bound { return Bound{m, c.relation, c.value, c.text} }

// relations matches the beginning of a condition, for the schema.
const relations = `(?:==|<=|>=|<|>) *`

var relation = &pattern{text: `^(==|<=|>=|<|>) *([^ =<>].*)$`}

// bound is a parser for a relation and a value that parse reads.
func bound[T uint64 | float64 | time.Duration](parse func(string) (T, error), example string) func(string) (condition, error) {
	return func(text string) (condition, error) {
		match := relation.compiled().FindStringSubmatch(text)
		if match == nil {
			return condition{}, fmt.Errorf("found %s, expected ==, <=, >=, < or > and a value, such as %q", quote(text), example)
		}
		value, err := parse(match[2])
		return condition{match[1], float64(value), text}, err
	}
}

// counted is a bound on a count, where a bare number is the exact one.
var counted = single(func(text string) (condition, error) {
	if n, err := parseCount(text); err == nil {
		return condition{"==", float64(n), text}, nil
	}
	return bound(parseCount, "<= 3")(text)
}, func() schema {
	return anyOf(schema{"type": "integer", "minimum": 0}, matching("(?:"+relations+")?[0-9]+"))
})

// boundOf is a relation and a value that matches a pattern.
func boundOf[T uint64 | float64 | time.Duration](parse func(string) (T, error), pattern, example string) form[condition] {
	return single(bound(parse, example), func() schema { return matching(relations + pattern) })
}

// parseNumber reads a number without a unit, which need not be whole.
func parseNumber(text string) (float64, error) {
	return decimalNumber(text, "a number without a unit such as 0.9 or 1000")
}

// A measured is a metric that a check may have a bound on.
type measured struct {
	metric Metric
	form   form[condition]
	doc    string
}

// asCount, asRate and so on are metrics whose values are of that kind.
func asCount(m Metric, doc string) measured { return measured{m, counted, doc} }

func asRate(m Metric, doc string) measured {
	return measured{m, boundOf(parseRate, rates.pattern(), ">= 200mbit"), doc}
}

func asTime(m Metric, doc string) measured {
	return measured{m, boundOf(instant.parse, `\+?`+goDuration, "<= 50ms"), doc}
}

func asSize(m Metric, doc string) measured {
	parse := func(text string) (uint64, error) { return sizes.whole(text, "bytes") }
	return measured{m, boundOf(parse, sizes.pattern(), "<= 300KiB"), doc}
}

func asShare(m Metric, doc string) measured {
	return measured{m, boundOf(ParsePercent, percentages.pattern(), "<= 1%"), doc}
}

func asNumber(m Metric, doc string) measured {
	return measured{m, boundOf(parseNumber, decimals, ">= 0.9"), doc}
}

// workloadMetrics are those of workloads.
func workloadMetrics() []measured {
	return []measured{
		asCount(Errors, "how many requests may fail: a number, or a relation and a number"),
		asRate(Throughput, "of payload, such as `\">= 200mbit\"`"),
		asCount(MessageCount, "how many messages, requests or rounds were completed"),
		asNumber(MessageRate, "of those, per second, such as `\">= 10000\"`"),
		asCount(Connections, "how many connections were made"),
		asNumber(ConnectRate, "of those, per second, such as `\">= 500\"`"),
		asCount(Reconnects, "how many of those were made in the place of connections that failed"),
		asTime(LatencyMin, "the least time from post to completion, such as `\"<= 50ms\"`"),
		asTime(LatencyP50, "the median of that time"),
		asTime(LatencyP90, "its 90th percentile"),
		asTime(LatencyP99, "its 99th percentile"),
		asTime(LatencyP999, "its 99.9th percentile"),
		asTime(LatencyP9999, "its 99.99th percentile"),
		asTime(LatencyMax, "the greatest of it"),
		asTime(LatencyJitter, "by how much its 99th percentile exceeds its median"),
		asTime(Recovered, "the longest time without a completion while there was something to do"),
		asNumber(Fairness, "Jain's index of the flows' throughputs, up to 1"),
	}
}

// linkMetrics are those of a direction of a link.
func linkMetrics() []measured {
	return []measured{
		asCount(LinkDropped, "how many packets were dropped, for whatever reason"),
		asShare(LinkLoss, "the share of packets that were dropped, such as `\"<= 2%\"`"),
		asRate(LinkRate, "what the link carried per second while it had packets"),
		asTime(LinkDelay, "the median of the delay"),
		asTime(LinkDelayP99, "the 99th percentile of the delay"),
		asCount(LinkOverruns, "how often the machine did not keep up"),
	}
}

// bufferMetrics are those of a buffer.
func bufferMetrics() []measured {
	return []measured{
		asCount(BufferDrops, "how many packets its ports dropped, in all classes, for whatever reason"),
		asSize(QueueP99, "the 99th percentile of the length of its longest queue while anything was queued, such as `\"<= 300KiB\"`; each class of a port has a queue"),
		asSize(QueuePeak, "what its longest queue held at most"),
		asTime(PauseTime, "the longest total time for which neighbours paused one class of one of its ports"),
	}
}

// metricKeys are the keys of metrics.
func metricKeys(metrics []measured) []string {
	return textsOf(metrics, func(m measured) string { return string(m.metric) })
}
