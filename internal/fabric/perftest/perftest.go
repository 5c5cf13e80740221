// Package perftest has the tests of `ndklab perf`, which are those of the programs of perftest, as workloads of a topology. It runs
// nothing.
//
// Start reading at Settings.
package perftest

import (
	"fmt"
	"slices"
	"strings"
)

// Tests are all tests, and the operation and measure of each.
var Tests = []struct{ Name, Operation, Measure string }{
	{"send-bw", "send", "bandwidth"},
	{"send-lat", "send", "latency"},
	{"write-bw", "write", "bandwidth"},
	{"write-lat", "write", "latency"},
	{"read-bw", "read", "bandwidth"},
	{"read-lat", "read", "latency"},
}

// Names returns their names.
func Names() []string {
	var names []string
	for _, t := range Tests {
		names = append(names, t.Name)
	}
	return names
}

// Keys are the keys of a workload that the command has flags of the same name for, but for the size, which it takes in other forms, too.
var Keys = []string{"from", "to", "pattern", "depth", "qps", "inline", "srq", "rate", "count", "duration", "warmup", "verify", "reconnect"}

// Settings returns a test as settings that topology.ParseWorkload takes: those given, KEY=VALUE, and what the test has in the place of those
// that are missing.
func Settings(test string, given []string) ([]string, error) {
	i := slices.Index(Names(), test)
	if i < 0 {
		return nil, fmt.Errorf("there is no test %q, expected %s", test, strings.Join(Names(), ", "))
	}
	t := Tests[i]
	settings := append([]string{"name=" + t.Name, "operation=" + t.Operation, "measure=" + t.Measure}, given...)
	value := func(key string) string {
		for _, s := range given {
			if k, v, _ := strings.Cut(s, "="); k == key {
				return v
			}
		}
		return ""
	}
	size := value("size")
	switch {
	case size != "":
	case t.Measure == "latency":
		settings = append(settings, "size=8B")
	default:
		settings = append(settings, "size=64KiB")
	}
	if t.Measure == "bandwidth" && value("depth") == "" {
		settings = append(settings, "depth=16")
	}
	switch {
	case value("count") != "" || value("duration") != "":
	case size == "all" || strings.HasPrefix(size, "["): // several, one after the other
		settings = append(settings, "duration=500ms")
	default:
		settings = append(settings, "duration=2s")
	}
	return settings, nil
}
