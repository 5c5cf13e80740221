package words

import (
	"math"
	"strconv"
	"strings"
)

// A scale is a ladder of units, ascending.
type scale []rung

type rung struct {
	name string
	of   float64 // base units
}

var (
	sizes = scale{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}
	rates = scale{{"b/s", 1}, {"kb/s", 1e3}, {"Mb/s", 1e6}, {"Gb/s", 1e9}, {"Tb/s", 1e12}}
	times = scale{{"us", 1}, {"ms", 1e3}, {"s", 1e6}} // base units are microseconds, as in the JSON form
)

// number writes a value with three significant digits in the largest unit that
// it reaches: 12.3 MiB, 8.41 Gb/s.
func (s scale) number(value float64) string {
	best := s[0]
	for i, u := range s {
		// 999.9 would be written as 1000 of the smaller unit.
		if limit := u.of * 0.9995; i == 0 || math.Abs(value) >= limit {
			best = u
		}
	}
	return Significant(value/best.of) + " " + best.name
}

// Significant returns a number with three significant digits and no exponent.
func Significant(x float64) string {
	switch abs := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return strconv.FormatFloat(x, 'g', -1, 64)
	case abs == 0:
		return "0"
	case abs >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case abs >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case abs >= 0.9995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	default:
		digits := 2 - int(math.Floor(math.Log10(abs)))
		return strconv.FormatFloat(x, 'f', digits, 64)
	}
}

// Short returns a value without the zeros that end its fraction: 1 ms for 1.00 ms.
func Short(text string) string {
	number, unit, _ := strings.Cut(text, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number + " " + unit
}

// Size returns a number of bytes: 64 KiB, 12.3 MiB.
func Size(bytes uint64) string {
	text := sizes.number(float64(bytes))
	if bytes < 1<<10 || strings.HasSuffix(text, " B") {
		return strconv.FormatUint(bytes, 10) + " B"
	}
	for _, u := range sizes[1:] {
		if n := float64(bytes) / u.of; n < 1000 && n >= 1 && n == math.Trunc(n) {
			return Short(text) // exact
		}
	}
	return text
}

// Rate returns a throughput given in Gb/s (10^9 bits per second): 812 Mb/s.
func Rate(gbps float64) string { return rates.number(gbps * 1e9) }

// Duration returns a time given in microseconds: 1.02 ms.
func Duration(us float64) string { return times.number(us) }

// Percent returns a fraction: 0.520 % for 0.0052.
func Percent(fraction float64) string { return Significant(fraction*100) + " %" }

// Count returns a whole number.
func Count(n uint64) string { return strconv.FormatUint(n, 10) }

// ExactSize returns a number of bytes in the largest unit that it is a whole number of.
func ExactSize(bytes uint64) string {
	unit, of := "B", uint64(1)
	for _, u := range sizes[1:] {
		if n := uint64(u.of); bytes >= n && bytes%n == 0 {
			unit, of = u.name, n
		}
	}
	return Count(bytes/of) + " " + unit
}

// Quantity returns a value in a base unit, "s", "bit/s", "B" or "" of numbers, with the prefix that suits it.
func Quantity(x float64, unit string) string {
	switch {
	case x == 0:
		return "0"
	case unit == "s":
		return Short(Duration(x * 1e6))
	case unit == "bit/s":
		return Short(Rate(x / 1e9))
	case unit == "B" && x >= 0:
		return Size(uint64(x))
	case math.Abs(x) >= 1e6:
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return strings.TrimSpace(Short(Significant(x)))
}
