package words

import (
	"testing"
)

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Size(0), "0 B"}, {Size(64), "64 B"}, {Size(1023), "1023 B"}, {Size(1024), "1 KiB"}, {Size(1025), "1.00 KiB"},
		{Size(65536), "64 KiB"}, {Size(12345678), "11.8 MiB"}, {Size(1 << 30), "1 GiB"}, {Size(1000 << 10), "1000 KiB"}, {Size(1<<64 - 1), "16777216 TiB"},
		{Rate(0), "0 b/s"}, {Rate(8.41), "8.41 Gb/s"}, {Rate(0.812), "812 Mb/s"}, {Rate(0.99999), "1.00 Gb/s"}, {Rate(62.04), "62.0 Gb/s"}, {Rate(1e-9), "1.00 b/s"},
		{Duration(0), "0 us"}, {Duration(0.123), "0.123 us"}, {Duration(1.5), "1.50 us"}, {Duration(999.7), "1.00 ms"}, {Duration(1020), "1.02 ms"}, {Duration(4063000), "4.06 s"}, {Duration(3.6e9), "3600 s"},
		{Percent(0), "0 %"}, {Percent(0.0052), "0.520 %"}, {Percent(0.001), "0.100 %"}, {Percent(1), "100 %"}, {Percent(1e-6), "0.000100 %"},
		{Short("1.00 ms"), "1 ms"}, {Short("0.100 %"), "0.1 %"}, {Short("100 %"), "100 %"}, {Short("0 us"), "0 us"}, {Short("10.0 Gb/s"), "10 Gb/s"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
