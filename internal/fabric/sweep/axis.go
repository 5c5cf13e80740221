package sweep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// ParseAxis reads PATH=V1,V2,... Commas inside of brackets, braces and quotes are a value's own.
func ParseAxis(text string) (report.Axis, error) {
	path, rest, ok := strings.Cut(text, "=")
	if !ok || path == "" || rest == "" {
		return report.Axis{}, fmt.Errorf("found %q, expected PATH=VALUE,VALUE... such as link.delay=1ms,10ms", text)
	}
	axis := report.Axis{Path: path}
	for _, value := range split(rest) {
		value = strings.TrimSpace(value)
		if _, err := topology.ParseSetting(path + "=" + value); err != nil {
			return axis, err
		}
		if slices.Contains(axis.Values, value) {
			return axis, fmt.Errorf("%s: %s a second time, expected each value once; --repeat runs each several times", path, value)
		}
		axis.Values = append(axis.Values, value)
	}
	return axis, nil
}

// split returns what stands between the commas of a text, but for those inside of something.
func split(text string) []string {
	var parts []string
	depth, quoted, begin := 0, rune(0), 0
	for i, c := range text {
		switch {
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '"' || c == '\'':
			quoted = c
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth <= 0:
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}

// A Scale has the values of an axis as numbers, in base units.
type Scale struct {
	Unit    string // "s", "B", "bit/s", or "" of numbers
	Numbers []float64
}

// ScaleOf returns the scale of an axis. ok is false if its values are words, or of several units.
func ScaleOf(axis report.Axis) (s Scale, ok bool) {
	for i, value := range axis.Values {
		number, unit, isNumber := topology.Quantity(value)
		if !isNumber || i > 0 && unit != s.Unit {
			return Scale{}, false
		}
		s.Unit = unit
		s.Numbers = append(s.Numbers, number)
	}
	return s, true
}
