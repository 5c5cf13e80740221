package topology

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFormat(t *testing.T) {
	tests := []struct{ got, want string }{
		{FormatSize(0), "0B"},
		{FormatSize(64), "64B"},
		{FormatSize(1500), "1500B"},
		{FormatSize(2000), "2KB"},
		{FormatSize(64 << 10), "64KiB"},
		{FormatSize(1000 << 10), "1000KiB"},
		{FormatSize(5e6), "5MB"},
		{FormatSize(1 << 30), "1GiB"},
		{FormatRate(0), "0bit"},
		{FormatRate(1), "1bit"},
		{FormatRate(999), "999bit"},
		{FormatRate(1000), "1kbit"},
		{FormatRate(2.5e9), "2.5gbit"},
		{FormatRate(1000000001), "1.000000001gbit"},
		{FormatRate(1e12), "1tbit"},
		{FormatDuration(0), "0ms"},
		{FormatDuration(1), "1ns"},
		{FormatDuration(50 * time.Microsecond), "50us"},
		{FormatDuration(1500 * time.Microsecond), "1.5ms"},
		{FormatDuration(90 * time.Second), "90s"},
		{FormatPercent(0), "0%"},
		{FormatPercent(0.001), "0.1%"},
		{FormatPercent(0.07), "7%"},
		{FormatPercent(1), "100%"},
		{FormatPercent(1e-9), "0.0000001%"},
		{FormatPercent(math.NaN()), "NaN"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("got %s, want %s", test.got, test.want)
		}
	}
}

// TestNegative has numbers that are negative, which is what is wrong with them
// rather than that they have no unit.
func TestNegative(t *testing.T) {
	size := func(text string) error { _, err := sizes.whole(text, "bytes"); return err }
	duration := func(text string) error { _, err := parseDuration(text); return err }
	percent := func(text string) error { _, err := ParsePercent(text); return err }
	number := func(text string) error { _, err := parseCount(text); return err }
	for _, test := range []struct {
		parse      func(string) error
		text, want string
	}{
		{size, "-1", "-1 is negative, expected a size such as 64KiB"},
		{size, "-1KiB", "-1KiB is negative, expected a size such as 64KiB"},
		{duration, "-5", "-5 is negative, expected a duration such as 5ms"},
		{percent, "-0.1", "-0.1 is negative, expected a percentage such as 0.1%"},
		{number, "-1", "-1 is negative, expected a whole number without a unit"},
		{number, "-0", `found "-0", expected a whole number without a unit`},
		{number, "-x", `found "-x", expected a whole number without a unit`},
	} {
		if err := test.parse(test.text); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
}

// TestFormatIsExact checks that what is written reads back as the same value.
func TestFormatIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		if got, err := sizes.whole(FormatSize(n), "bytes"); err != nil || got != n {
			t.Errorf("size %s reads as %d, %v", FormatSize(n), got, err)
		}
		if got, err := parseRate(FormatRate(n)); err != nil || got != n {
			t.Errorf("rate %s reads as %d, %v", FormatRate(n), got, err)
		}
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		if got, err := parseDuration(FormatDuration(d)); err != nil || got != d {
			t.Errorf("duration %s of %d reads as %d, %v", FormatDuration(d), d, got, err)
		}
		f := rapid.Float64Range(1e-12, 1).Draw(t, "f")
		if got, err := ParsePercent(FormatPercent(f)); err != nil || got != f {
			t.Errorf("percentage %s of %g reads as %g, %v", FormatPercent(f), f, got, err)
		}
	})
}

// TestSuggestionsEnd checks that a file full of unknown words does not have each
// of them compared with every known one.
func TestSuggestionsEnd(t *testing.T) {
	r := &reader{}
	for range suggestions {
		if got := r.expectation("dealy", []string{"delay"}); got != `expected "delay"?` {
			t.Fatal(got)
		}
	}
	if got := r.expectation("dealy", []string{"delay"}); got != "expected delay" {
		t.Error(got)
	}
}

// The error of a number says what is wrong with it: that a number is too large, with
// what the place takes, is no question of units.
func TestNumbersThatAreWrong(t *testing.T) {
	nines := strings.Repeat("9", 60)
	for _, test := range []struct{ setting, want string }{
		{"delay=" + nines + "s", "too large, expected 0ms to 60s"},
		{"delay=9999999999s", "too large, expected 0ms to 60s"},
		{"delay=99999999999999999999s", "too large, expected 0ms to 60s"},
		{"delay=2562048h", "too large, expected 0ms to 60s"},
		{"delay=1h", "1h is out of range, expected 0ms to 60s"},
		{"delay=-1m30s", "-1m30s is out of range"},
		{"delay=NaNs", `found "NaNs", expected a duration`},
		{"delay=1e400s", "has an exponent"},
		{"delay=0." + strings.Repeat("1", 50) + "ms", ""}, // which Go's reader takes
		{"jitter=" + nines + "ms", "too large, expected 0ms to 60s"},
		{"rate=" + nines + "gbit", "too large, expected 1bit to 1tbit"},
		{"rate=99999999999999999999gbit", "too large, expected 1bit to 1tbit"},
		{"rate=0." + strings.Repeat("1", 50) + "gbit", "has too many digits"},
		{"rate=" + strings.Repeat("0", 30) + "1gbit", "has too many digits"},
		{"rate=1e9gbit", "has an exponent"},
		{"loss=" + nines + "%", "too large, expected 0% to 100%"},
		{"loss=1e3%", "has an exponent"},
		{"loss={rate: 1%, burst: " + nines + "}", "too large, expected 1 to 1000000"},
		{"loss={every: " + nines + "}", "too large"},
		{"burst=" + nines + "GiB", "too large, expected 0B to 1TiB"},
		{"queue=" + nines + "packets", "too large, expected 1packets to 1073741824packets"},
		{"queue=" + nines + "MiB", "too large, expected 1KiB to 1TiB"},
		{"corrupt={probability: 1%, bits: " + nines + "}", "too large, expected 1 to 8"},
		{"flap={period: " + nines + "s, down: 1s}", "too large, expected 1ms to 86400s"},
	} {
		_, err := ParseChange(nil, []string{test.setting})
		if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) && test.want != "" || strings.Contains(got, "unit") {
			t.Errorf("%.40s: %v, want %q", test.setting, err, test.want)
		}
	}
	for _, text := range []string{"<= " + nines + "s", "<= " + nines + "h"} {
		if _, err := bound(parseDuration, "<= 1s")(text); err == nil || !strings.Contains(err.Error(), "too large, expected at most") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]string{
		"10ms": "0.01 s true", "64KiB": "65536 B true", "1.5gbit": "1.5e+09 bit/s true", "0.1%": "0.001  true", "42": "42  true",
		"dcqcn": "0  false", "": "0  false", "[3]": "0  false", "10 ms": "0  false",
	} {
		value, unit, ok := Quantity(text)
		if got := fmt.Sprintf("%g %s %v", value, unit, ok); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
