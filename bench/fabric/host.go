package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// A cpuTime says what all processors together have done, in ticks.
type cpuTime struct{ idle, total float64 }

// cpuTimes reads the first line of /proc/stat.
func cpuTimes() cpuTime {
	text, _ := os.ReadFile("/proc/stat") // without it the host counts as saturated
	first, _, _ := bytes.Cut(text, []byte("\n"))
	var t cpuTime
	for i, field := range strings.Fields(string(first)) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			continue // "cpu"
		}
		if i == 4 || i == 5 { // idle, iowait
			t.idle += ticks
		}
		if i <= 8 { // not guests, who are in user already
			t.total += ticks
		}
	}
	return t
}

func idleSince(before cpuTime) float64 {
	now := cpuTimes()
	if now.total <= before.total {
		return 0
	}
	return (now.idle - before.idle) / (now.total - before.total)
}
