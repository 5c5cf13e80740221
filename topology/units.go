package topology

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// A quantity is a kind of value that is written as a decimal number and a unit,
// without a space.
type quantity struct {
	name    string // "a size"
	example string
	usual   string // the unit that a bare number was probably meant in
	units   []unit // ascending
}

type unit struct {
	name string
	of   uint64 // base units
}

var (
	sizes = quantity{"a size", "64KiB", "KiB", []unit{
		{"B", 1},
		{"KB", 1e3}, {"KiB", 1 << 10},
		{"MB", 1e6}, {"MiB", 1 << 20},
		{"GB", 1e9}, {"GiB", 1 << 30},
		{"TB", 1e12}, {"TiB", 1 << 40},
	}}
	// memories are sizes of another order.
	memories = quantity{"a size", "256MiB", "MiB", sizes.units}
	// queueSizes are sizes in a place where packetCounts may stand, too.
	queueSizes   = quantity{"a size or a number of packets", "4MiB", "packets", sizes.units}
	packetCounts = quantity{"a number of packets", "1000packets", "packets", []unit{{"packets", 1}}}
	// rates has tc's spelling (tc(8), PARAMETERS), its bits only.
	rates = quantity{"a rate", "10gbit", "mbit", []unit{
		{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12},
	}}
	percentages = quantity{"a percentage", "0.1%", "%", []unit{{"%", 1}}}
	durations   = quantity{"a duration", "5ms", "ms", []unit{
		{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9},
	}}
	// adapterTimes and adapterSizes are in a place where adapters' tools have numbers without
	// a unit.
	adapterTimes = quantity{"a duration", "4us", "us", durations.units}
	adapterSizes = quantity{"a size", "10MB", "B", sizes.units}
)

// number matches what stands before a unit; that it is short keeps exact
// arithmetic cheap.
var number = &pattern{text: `^([+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))(.*)$`}

// exponent matches what stands behind a number that has one.
var exponent = &pattern{text: `^[eE][+-]?[0-9]`}

// A tooLargeError is about a number that is more than any place takes. A caller that knows
// what its place takes says that (within).
type tooLargeError struct{ text, most string }

// Error says what the number could be at most.
func (e *tooLargeError) Error() string {
	return quote(e.text) + " is too large, expected at most " + e.most
}

// excess describes what is wrong with text in which the pattern number has matched a number
// that goes on in rest.
func excess(text, rest string) error {
	if rest == "" || rest[0] < '0' || rest[0] > '9' {
		return nil
	}
	whole, fraction, _ := strings.Cut(strings.TrimLeft(text, "+-0"), ".")
	if digits := len(whole) - len(strings.TrimLeft(whole, "0123456789")); digits > 20 && fraction == "" || len(whole) > 20 && fraction != "" {
		return &tooLargeError{text, "20 digits"}
	}
	return fmt.Errorf("%s has too many digits, expected at most 20 before the point and 40 behind it", quote(text))
}

// exact is the value of text in base units.
func (q quantity) exact(text string) (*big.Rat, error) {
	match := number.compiled().FindStringSubmatch(text)
	if match == nil {
		return nil, fmt.Errorf("found %s, expected %s such as %s", quote(text), q.name, q.example)
	}
	if err := excess(text, match[2]); err != nil {
		return nil, err
	}
	if exponent.compiled().MatchString(match[2]) {
		return nil, fmt.Errorf("%s has an exponent, expected %s such as %s", quote(text), q.name, q.example)
	}
	value, ok := new(big.Rat).SetString(match[1])
	if !ok {
		return nil, fmt.Errorf("found %s, expected %s such as %s", quote(text), q.name, q.example)
	}
	if match[2] == "" && value.Sign() < 0 {
		return nil, fmt.Errorf("%s is negative, expected %s such as %s", text, q.name, q.example)
	}
	if match[2] == "" {
		return nil, fmt.Errorf("%s has no unit, expected %s (%s%s?)", text, q.name, match[1], q.usual)
	}
	var names []string
	for _, u := range q.units {
		if u.name == match[2] {
			return value.Mul(value, new(big.Rat).SetUint64(u.of)), nil
		}
		names = append(names, u.name)
	}
	meant := ""
	for _, u := range q.units {
		if strings.EqualFold(u.name, strings.TrimSpace(match[2])) {
			meant = fmt.Sprintf(" (%s%s?)", match[1], u.name)
		}
	}
	return nil, fmt.Errorf("%s has no known unit, expected %s in %s%s", quote(text), q.name, strings.Join(names, ", "), meant)
}

// whole is the value of text where that must be a whole number of base units.
func (q quantity) whole(text, base string) (uint64, error) {
	value, err := q.exact(text)
	switch {
	case err != nil:
		return 0, err
	case value.Sign() < 0:
		return 0, fmt.Errorf("%s is negative, expected %s such as %s", text, q.name, q.example)
	case !value.IsInt():
		return 0, fmt.Errorf("%s is not a whole number of %s, expected one", text, base)
	case !value.Num().IsUint64():
		return 0, &tooLargeError{text, q.format(math.MaxUint64)}
	}
	return value.Num().Uint64(), nil
}

// format is about a value in the largest unit.
func (q quantity) format(value uint64) string {
	largest := q.units[len(q.units)-1]
	return strconv.FormatUint(value/largest.of, 10) + largest.name
}

// Quantity returns a value as a file has it in its base unit: "s", "B", "bit/s", or "" of a fraction
// or a number without a unit. ok is false if it is nothing of that.
func Quantity(text string) (value float64, unit string, ok bool) {
	if n, err := decimalNumber(text, ""); err == nil {
		return n, "", true
	}
	if fraction, err := ParsePercent(text); err == nil {
		return fraction, "", true
	}
	if d, err := parseDuration(text); err == nil {
		return d.Seconds(), "s", true
	}
	for unit, q := range map[string]quantity{"B": sizes, "bit/s": rates} {
		if n, err := q.exact(text); err == nil {
			value, _ := n.Float64()
			return value, unit, true
		}
	}
	return 0, "", false
}

// parseRate reads bits per second.
func parseRate(text string) (uint64, error) { return rates.whole(text, "bits per second") }

// ParsePercent reads a percentage, such as 0.1%, as a fraction.
func ParsePercent(text string) (float64, error) {
	value, err := percentages.exact(text)
	if err != nil {
		return 0, err
	}
	fraction, _ := value.Quo(value, big.NewRat(100, 1)).Float64()
	return fraction, nil
}

// parseDuration reads a duration.
func parseDuration(text string) (time.Duration, error) { return durations.duration(text) }

// duration reads a duration in Go's syntax, which also has 1m30s and µs.
func (q quantity) duration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil && !strings.HasSuffix(text, "0") {
		return d, nil
	}
	// Go takes a bare 0. For anything else, exact knows the error.
	if _, err := q.exact(text); err != nil {
		return 0, err
	}
	return 0, &tooLargeError{text, q.format(math.MaxInt64)}
}

// parseCount reads a number without a unit.
func parseCount(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, &tooLargeError{text, "18446744073709551615"}
	case err != nil:
		if below, err := strconv.ParseInt(text, 10, 64); err == nil && below < 0 {
			return 0, fmt.Errorf("%s is negative, expected a whole number without a unit", text)
		}
		return 0, fmt.Errorf("found %s, expected a whole number without a unit", quote(text))
	}
	return n, nil
}

// parseLength reads a number of packets, which may be a mean.
func parseLength(text string) (float64, error) {
	return decimalNumber(text, "a number of packets such as 5 or 2.5")
}

// parseCores reads a number of processor cores.
func parseCores(text string) (float64, error) {
	return decimalNumber(text, "a number of cores such as 0.5")
}

// decimalNumber reads a number without a unit, which may have a fraction.
func decimalNumber(text, expected string) (float64, error) {
	match := number.compiled().FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("found %s, expected %s", quote(text), expected)
	}
	if err := excess(text, match[2]); err != nil {
		return 0, err
	}
	if match[2] != "" {
		return 0, fmt.Errorf("found %s, expected %s", quote(text), expected)
	}
	return strconv.ParseFloat(match[1], 64)
}

// FormatSize writes bytes as a topology file has them, in the largest unit that
// needs no fraction: 64KiB.
func FormatSize(bytes uint64) string {
	best := unit{"B", 1}
	for _, u := range sizes.units {
		if u.of > best.of && bytes != 0 && bytes%u.of == 0 {
			best = u
		}
	}
	return strconv.FormatUint(bytes/best.of, 10) + best.name
}

// FormatRate writes bits per second as a topology file has them, exactly, in
// the largest unit that is not above them: 2.5gbit.
func FormatRate(bits uint64) string { return decimal(bits, rates.units) }

// FormatDuration writes a duration that is not negative as a topology file has
// it, exactly, in the largest unit up to seconds that is not above it: 1.5ms.
func FormatDuration(d time.Duration) string {
	ns := uint64(max(d, 0))
	if ns == 0 {
		return "0ms"
	}
	return decimal(ns, durations.units[:4])
}

// formatSigned is FormatDuration of a duration that may be negative.
func formatSigned(d time.Duration) string {
	if d < 0 {
		return "-" + FormatDuration(-d)
	}
	return FormatDuration(d)
}

// decimal writes value in the largest unit not above it. The units ascend by
// powers of ten, from 1.
func decimal(value uint64, units []unit) string {
	best := units[0]
	for _, u := range units {
		if u.of <= value {
			best = u
		}
	}
	text := strconv.FormatUint(value/best.of, 10)
	if rest := value % best.of; rest != 0 {
		// The leading 1 keeps the zeros behind the point.
		text += "." + strings.TrimRight(strconv.FormatUint(best.of+rest, 10)[1:], "0")
	}
	return text + best.name
}

// formatNumber writes a number without a unit, exactly.
func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func formatPackets(n uint64) string { return strconv.FormatUint(n, 10) + packetCounts.usual }

// FormatPercent writes a fraction as a topology file has it, exactly: 0.1% for
// 0.001.
func FormatPercent(fraction float64) string {
	// Its shortest decimal form, with the point two places further on, is exact
	// where a multiplication is not.
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(fraction, 'e', -1, 64), "e")
	shifted, _ := strconv.Atoi(exponent)
	value, ok := new(big.Rat).SetString(fmt.Sprintf("%se%d", mantissa, shifted+2))
	if !ok {
		return strconv.FormatFloat(fraction, 'g', -1, 64) // not a number, or infinite
	}
	digits, _ := value.FloatPrec()
	return value.FloatString(digits) + "%"
}
