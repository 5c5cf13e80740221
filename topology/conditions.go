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

// relations is what a condition begins with, for the schema.
const relations = `(?:==|<=|>=|<|>) *`

var relation = lazily(`^(==|<=|>=|<|>) *([^ =<>].*)$`)

// bound is a parser for a relation and a value that parse reads.
func bound[T uint64 | float64 | time.Duration](parse func(string) (T, error), example string) func(string) (condition, error) {
	return func(text string) (condition, error) {
		match := relation().FindStringSubmatch(text)
		if match == nil {
			return condition{}, fmt.Errorf("found %s, expected ==, <=, >=, < or > and a value, such as %q", quote(text), example)
		}
		value, err := parse(match[2])
		return condition{match[1], float64(value), text}, err
	}
}

// counted is a parser for a bound on a count, where a bare number is the exact one.
func counted(text string) (condition, error) {
	if n, err := parseCount(text); err == nil {
		return condition{"==", float64(n), text}, nil
	}
	return bound(parseCount, "<= 3")(text)
}

func countedSchema() schema {
	return anyOf(schema{"type": "integer", "minimum": 0}, matching("(?:"+relations+")?[0-9]+"))
}

// parseNumber reads a number without a unit, which need not be whole.
func parseNumber(text string) (float64, error) {
	return decimalNumber(text, "a number without a unit such as 0.9 or 1000")
}

// A measured is a metric that a check may have a bound on.
type measured struct {
	metric Metric
	parse  func(string) (condition, error)
	schema schema
	what   string // for the schema
}

// asCount, asRate and so on are metrics whose values are of that kind.
func asCount(m Metric, what string) measured { return measured{m, counted, countedSchema(), what} }

func asRate(m Metric, what string) measured {
	return measured{m, bound(parseRate, ">= 200mbit"), matching(relations + rates.pattern()), what}
}

func asTime(m Metric, what string) measured {
	return measured{m, bound(instant, "<= 50ms"), matching(relations + `\+?` + goDuration), what}
}

func asShare(m Metric, what string) measured {
	return measured{m, bound(parsePercent, "<= 1%"), matching(relations + percentages.pattern()), what}
}

func asNumber(m Metric, what string) measured {
	return measured{m, bound(parseNumber, ">= 0.9"), matching(relations + decimals), what}
}

// workloadMetrics are those of workloads.
func workloadMetrics() []measured {
	return []measured{
		asCount(Errors, "How many requests may fail: a number, or a relation and a number."),
		asRate(Throughput, `Of payload, such as ">= 200mbit".`),
		asCount(MessageCount, "How many messages, requests or rounds were completed."),
		asNumber(MessageRate, `Of those, per second, such as ">= 10000".`),
		asCount(Connections, "How many connections were made."),
		asNumber(ConnectRate, `Of those, per second, such as ">= 500".`),
		asCount(Reconnects, "How many of those were made in the place of connections that failed."),
		asTime(LatencyMin, `The least time from post to completion, such as "<= 50ms".`),
		asTime(LatencyP50, "The median of that time."),
		asTime(LatencyP90, "Its 90th percentile."),
		asTime(LatencyP99, "Its 99th percentile."),
		asTime(LatencyP999, "Its 99.9th percentile."),
		asTime(LatencyP9999, "Its 99.99th percentile."),
		asTime(LatencyMax, "The greatest of it."),
		asTime(LatencyJitter, "By how much its 99th percentile exceeds its median."),
		asTime(Recovered, "The longest time without a completion while there was something to do."),
		asNumber(Fairness, "Jain's index of the flows' throughputs, up to 1."),
	}
}

// linkMetrics are those of a direction of a link.
func linkMetrics() []measured {
	return []measured{
		asCount(LinkDropped, "How many packets were dropped, for whatever reason."),
		asShare(LinkLoss, `The share of packets that were dropped, such as "<= 2%".`),
		asRate(LinkRate, "What the link carried per second while it had packets."),
		asTime(LinkDelay, "The median of the delay."),
		asTime(LinkDelayP99, "The 99th percentile of the delay."),
		asCount(LinkOverruns, "How often the machine did not keep up."),
	}
}

// metricKeys are the keys of metrics.
func metricKeys(metrics []measured) []string {
	var names []string
	for _, m := range metrics {
		names = append(names, string(m.metric))
	}
	return names
}
