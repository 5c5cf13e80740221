package mmu

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestHeadroom(t *testing.T) {
	for _, c := range []struct {
		rate            uint64
		delay, reaction time.Duration
		frame           int
		want            int64
	}{
		{10e9, time.Microsecond, 0, 1048, 2500 + 2096 + 84},
		{100e9, time.Microsecond, 0, 4178, 25_000 + 8356 + 84},
		{100e9, 1500, 500, 9000, 37_500 + 6250 + 18_000 + 84},
		{3, 1, 0, 1, 1 + 2 + 84}, // rounded up
		{10e9, 0, 0, 1048, 2096 + 84},
		{math.MaxUint64, math.MaxInt64 / 2, 0, 0, maxSize + 84},
	} {
		if got := Headroom(c.rate, c.delay, c.reaction, c.frame); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(c *Config)
	}{
		{"buffer of 0 bytes", func(c *Config) { c.Size = 0 }},
		{"0 ports", func(c *Config) { c.Ports = nil }},
		{"watchdog detects", func(c *Config) { c.Watchdog.Detect = -1 }},
		{"watchdog restores at once", func(c *Config) { c.Watchdog.Detect = 1 }},
		{"port 1: no rate", func(c *Config) { c.Ports[1].Rate = 0 }},
		{"longest packet of 0", func(c *Config) { c.Ports[1].MaxFrame = 0 }},
		{"port 1: class 2: reserve of -1", func(c *Config) { c.Ports[1].Classes[2].Reserve = -1 }},
		{"headroom of", func(c *Config) { c.Ports[1].Classes[2].Headroom = maxSize }},
		{"alpha of NaN", func(c *Config) { c.Ports[1].Classes[2].Alpha = math.NaN() }},
		{"egress alpha of -1", func(c *Config) { c.Ports[1].Classes[2].EgressAlpha = -1 }},
		{"probability of marks of 1.5", func(c *Config) { c.Ports[1].Classes[2].Mark.Probability = 1.5 }},
		{"neither alpha nor xoff", func(c *Config) { c.Ports[1].Classes[2].XOFF = 0 }},
		{"class that is not lossless", func(c *Config) { c.Ports[1].Classes[2].Lossless = false }},
		{"marks from 2 to 1", func(c *Config) { c.Ports[1].Classes[2].Mark = WRED{Min: 2, Max: 1} }},
		{"weight -1", func(c *Config) { c.Ports[1].Classes[2].Weight = -1 }},
		{"want more than 33", func(c *Config) { c.Quanta = 33 }},
		{"reserves and headroom need 48000 bytes of a buffer of 47999", func(c *Config) { c.Size = 47_999 }},
	} {
		config := Config{Size: 1 << 20, Ports: make([]Port, 2)}
		for i := range config.Ports {
			config.Ports[i] = Port{Rate: 10e9, MaxFrame: 1000}
			for k := range Classes {
				config.Ports[i].Classes[k] = lossless
			}
		}
		if err := config.Validate(); err != nil {
			t.Fatal(err)
		}
		c.change(&config)
		if _, err := New[int](config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestDSCPTable(t *testing.T) {
	table := DSCPTable{26: 3, 48: 6, 63: 255}
	for tos, want := range map[uint8]int{26 << 2: 3, 26<<2 | 3: 3, 48<<2 | 2: 6, 0: 0, 255: 7} {
		if got := table.Class(tos); got != want {
			t.Errorf("tos %d: class %d, want %d", tos, got, want)
		}
	}
}

// TestTrident2 has the figures of the DCQCN paper, section 4: in a switch with 32 ports a fixed
// threshold of PFC may be 24.47 KB at most, and with beta 8 marks begin before any pause as long as
// they begin below 21.75 KB.
func TestTrident2(t *testing.T) {
	lines := make([]Line, 32)
	for i := range lines {
		lines[i] = Line{Rate: 40e9, Delay: time.Microsecond, MaxFrame: 1048}
	}
	c, err := Preset("trident2", classSet(0xff), lines)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Shared() / (32 * Classes); got != 24_475 {
		t.Errorf("fixed threshold %d bytes, want 24475", got)
	}
	// In each class all that is in the buffer came in by one port, and fills each port's queue.
	for _, x := range []struct {
		bytes int64
		pause bool
	}{{21_750, false}, {21_760, true}} {
		s, err := New[int](c)
		if err != nil {
			t.Fatal(err)
		}
		for class := range Classes {
			for out := range lines {
				for left := x.bytes; left > 0; left -= 870 {
					if v := s.Arrive(0, class, out, class, int(min(left, 870)), true, 0); v != Admitted {
						t.Fatal(v)
					}
				}
			}
		}
		_, paused := s.Pause(0, Classes-1)
		if paused != x.pause {
			t.Errorf("%d bytes in each queue: paused %v", x.bytes, paused)
		}
	}
}

func TestPresets(t *testing.T) {
	lines := []Line{{Rate: 40e9, Delay: 1000, MaxFrame: 1048}, {Rate: 100e9, Delay: 1000, MaxFrame: 1048}}
	for _, name := range presetNames {
		c, err := Preset(name, nil, lines)
		if err != nil {
			t.Fatal(err)
		}
		class := &c.Ports[0].Classes[3]
		if !class.Lossless || c.Ports[0].Classes[4].Lossless != (name == "sonic") {
			t.Errorf("%s: lossless classes", name)
		}
		if cnps := &c.Ports[1].Classes[6]; cnps.Reserve != 1024 || (cnps.Weight == 0) != (name != "sonic") {
			t.Errorf("%s: %+v", name, cnps)
		}
		if name == "trident2" {
			continue
		}
		if class.Alpha != 1.0/8 || class.Headroom != 10_000+2096+84 {
			t.Errorf("%s: %+v", name, class)
		}
		if name == "hpcc" {
			// Twice as fast twice, as the simulator counts: 100, 50, 25.
			if fast := &c.Ports[1].Classes[3]; fast.Alpha != 1.0/2 || fast.Mark != (WRED{Min: 400e3, Max: 1600e3, Probability: 0.2}) {
				t.Errorf("hpcc: %+v", fast)
			}
		}
	}
	if _, err := Preset("tomahawk", nil, lines); err == nil || !strings.Contains(err.Error(), "hpcc, trident2, sonic") {
		t.Errorf("error %v", err)
	}
	lines[0].Delay = time.Second
	if _, err := Preset("hpcc", nil, lines); err == nil {
		t.Error("headroom for a second in 12 MiB")
	}
}

// classSet returns classes as Preset takes them.
func classSet(classes uint8) *uint8 { return &classes }
