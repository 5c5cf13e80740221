package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A tool is a program that people would use instead, or to find out what their
// network does.
type tool struct {
	name    string   // of the command
	debian  string   // the package that has it
	version []string // the command whose first line of output has it
}

// tools are those that are measured where they are installed.
var tools = []tool{
	{"iperf3", "iperf3", []string{"iperf3", "--version"}},
	{"ucx_perftest", "ucx-utils", []string{"ucx_info", "-v"}},
	{"fi_pingpong", "libfabric-bin", []string{"fi_info", "--version"}},
	{"sockperf", "sockperf", []string{"sockperf", "--version"}},
}

// absent says why a tool is not there and what to do; "" if it is there.
func (t *tool) absent() string {
	if _, err := exec.LookPath(t.name); err == nil {
		return ""
	}
	return fmt.Sprintf("%s is not installed: apt-get install %s", t.name, t.debian)
}

// says returns the version of a tool that is there.
func (t *tool) says(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, t.version[0], t.version[1:]...).CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	if first = strings.Trim(first, "# "); first == "" || err != nil {
		return "of unknown version"
	}
	return first
}

// versionPatience bounds the time that a tool may take to print its version.
const versionPatience = 2 * time.Second

// parseIperf reads what iperf3 --json says: what the receiver got, Gb/s.
func parseIperf(text string) (float64, error) {
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return 0, fmt.Errorf("iperf3's report: %w", err)
	}
	if report.Error != "" {
		return 0, fmt.Errorf("iperf3: %s", report.Error)
	}
	return positive("iperf3", report.End.Received.Rate/1e9)
}

// A ucxResult is a line of ucx_perftest -v.
type ucxResult struct {
	median   float64 // latency, us: of tests of latency half a round trip
	messages float64 // per second, of the whole run
}

// parseUCX reads the last line of what ucx_perftest -f -v says, in which the columns
// have names.
func parseUCX(text string) (r ucxResult, err error) {
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return r, fmt.Errorf("ucx_perftest's report: %w", err)
	}
	if len(lines) < 2 {
		return r, errors.New("ucx_perftest says nothing")
	}
	for name, value := range map[string]*float64{"50.0_percentile_lat": &r.median, "overall_mr": &r.messages} {
		if *value, err = column(lines[0], lines[len(lines)-1], name); err != nil {
			return r, fmt.Errorf("ucx_perftest's report: %w", err)
		}
	}
	return r, nil
}

// column returns the value under a heading.
func column(headings, values []string, name string) (float64, error) {
	i := slices.Index(headings, name)
	if i < 0 || i >= len(values) {
		return 0, fmt.Errorf("it has no %s", name)
	}
	v, err := strconv.ParseFloat(values[i], 64)
	if err != nil {
		return 0, err
	}
	return positive(name, v)
}

// parsePingPong reads fi_pingpong's table: half a round trip, us.
func parsePingPong(text string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	headings := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "bytes") })
	if headings < 0 || headings+1 >= len(lines) {
		return 0, errors.New("fi_pingpong says nothing")
	}
	v, err := column(strings.Fields(lines[headings]), strings.Fields(lines[headings+1]), "usec/xfer")
	if err != nil {
		return 0, fmt.Errorf("fi_pingpong's report: %w", err)
	}
	return v, nil
}

// A sockperfResult is half of round trips, us.
type sockperfResult struct{ median, p999 float64 }

// parseSockperf reads the percentiles of sockperf ping-pong.
func parseSockperf(text string) (r sockperfResult, err error) {
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, "percentile ")
		which, value, eq := strings.Cut(rest, "=")
		if !ok || !eq {
			continue
		}
		into := map[string]*float64{"50.000": &r.median, "99.900": &r.p999}[strings.TrimSpace(which)]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
			return r, fmt.Errorf("sockperf's report: %w", err)
		}
	}
	if r.median <= 0 || r.p999 <= 0 {
		return r, errors.New("sockperf says no percentiles")
	}
	return r, nil
}

// positive refuses figures that mean that nothing was measured.
func positive(what string, v float64) (float64, error) {
	if !(v > 0) {
		return 0, fmt.Errorf("%s: %v is no figure", what, v)
	}
	return v, nil
}
