package congestion

import (
	"math"
	"strings"
	"testing"
)

func TestPresetsAreValid(t *testing.T) {
	for name, c := range map[string]Config{
		"zero":      {},
		"none":      {Algorithm: None},
		"connectx":  {Algorithm: WithDCQCN, DCQCN: ConnectX(), DSCP: 26, CNP: ConnectXCNP()},
		"paper":     {Algorithm: WithDCQCN, DCQCN: Paper(), DSCP: 63, CNP: PaperCNP()},
		"unused":    {Algorithm: Window, DCQCN: DCQCN{RPGGD: 99}},
		"dctcp":     {Algorithm: WithDCTCP, DCTCP: DefaultDCTCP(), DSCP: 26, CNP: DCTCPCNP()},
		"bdp":       {Algorithm: WithBDP, BDP: BDP{RTT: 12 * us}},
		"per port":  {CNP: CNP{Per: PerPort}},
		"per peer":  {CNP: CNP{Per: PerAddress}},
		"low limit": {Algorithm: WithDCQCN, DCQCN: func() DCQCN { p := ConnectX(); p.RPGMaxRate = p.RPGMinRate; return p }()},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Algorithm = 5 }, "algorithm 5 is unknown, want one of [window none dcqcn dctcp bdp]"},
		{func(c *Config) { c.DSCP = 64 }, "dscp is 64, want 0 to 63"},
		{func(c *Config) { c.Burst = -1 }, "burst is -1 bytes"},
		{func(c *Config) { c.CNP.DSCP = 64 }, "dscp of CNPs is 64, want 0 to 63"},
		{func(c *Config) { c.CNP.MinTime = -us }, "min_time of CNPs is -1µs"},
		{func(c *Config) { c.CNP.Delay = -us }, "delay of CNPs is -1µs"},
		{func(c *Config) { c.CNP.Per = 3 }, "per 3, want 0 to 2"},
		{func(c *Config) { c.DCQCN.RPGTimeReset = 0 }, "rpg_time_reset is 0s, want more than 0"},
		{func(c *Config) { c.DCQCN.RPGByteReset = -1 }, "rpg_byte_reset is -1, want 0, for none, or"},
		{func(c *Config) { c.DCQCN.RPGThreshold = 0 }, "rpg_threshold is 0, want 1 to 31"},
		{func(c *Config) { c.DCQCN.RPGThreshold = 32 }, "rpg_threshold is 32, want 1 to 31"},
		{func(c *Config) { c.DCQCN.RPGMaxRate = -1 }, "rpg_max_rate is -1"},
		{func(c *Config) { c.DCQCN.RPGMaxRate = 1000 }, "rpg_min_rate is 1e+06, want no more than rpg_max_rate"},
		{func(c *Config) { c.DCQCN.RPGAIRate = math.Inf(1) }, "rpg_ai_rate is +Inf"},
		{func(c *Config) { c.DCQCN.RPGHAIRate = nan }, "rpg_hai_rate is NaN"},
		{func(c *Config) { c.DCQCN.RPGGD = 16 }, "rpg_gd is 16, want 10 or 11"},
		{func(c *Config) { c.DCQCN.RPGMinDecFac = 50 }, "rpg_min_dec_fac is 50, want a share of the rate from 0 to 1"},
		{func(c *Config) { c.DCQCN.RPGMinRate = 0 }, "rpg_min_rate is 0, want 1 bit"},
		{func(c *Config) { c.DCQCN.RateToSetOnFirstCNP = -1 }, "rate_to_set_on_first_cnp is -1"},
		{func(c *Config) { c.DCQCN.DCETCPG = 1019 }, "dce_tcp_g is 1019, want"},
		{func(c *Config) { c.DCQCN.DCETCPRTT = 0 }, "dce_tcp_rtt is 0s, want more than 0"},
		{func(c *Config) { c.DCQCN.RateReduceMonitorPeriod = -1 }, "rate_reduce_monitor_period is -1ns"},
		{func(c *Config) { c.DCQCN.InitialAlphaValue = nan }, "initial_alpha_value is NaN"},
		{func(c *Config) { c.Algorithm, c.DCTCP.G = WithDCTCP, 1.5 }, "g is 1.5, want a weight of a new sample from 0 to 1"},
		{func(c *Config) { c.Algorithm, c.DCTCP.G = WithDCTCP, nan }, "g is NaN, want"},
		{func(c *Config) { c.Algorithm, c.DCTCP.RTT = WithDCTCP, -1 }, "rtt is -1ns, want 0, to measure it, or more"},
		{func(c *Config) { c.Algorithm, c.BDP.RTT = WithBDP, -1 }, "rtt is -1ns, want 0, to measure it, or more"},
	} {
		config := Config{Algorithm: WithDCQCN, DCQCN: ConnectX(), CNP: ConnectXCNP()}
		c.change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestNew(t *testing.T) {
	for algorithm, want := range map[Algorithm]struct{ rate, window, marks, reads bool }{
		None:      {},
		WithDCQCN: {rate: true, marks: true},
		WithDCTCP: {window: true, marks: true, reads: true},
		WithBDP:   {window: true, reads: true},
	} {
		config := Config{Algorithm: algorithm, DCQCN: ConnectX()}
		c := config.New(1e9, 1000)
		got := struct{ rate, window, marks, reads bool }{c.Rate(0) != 0, c.Window() != 0, config.HearsMarks(), config.BoundsReads()}
		if got != want {
			t.Errorf("%v: %+v, want %+v", algorithm, got, want)
		}
	}
	if c := new(Config).New(1e9, 1000); c != nil {
		t.Errorf("%T without an algorithm", c)
	}
}

func TestAlgorithmNames(t *testing.T) {
	for i, name := range Algorithms() {
		var a Algorithm
		if err := a.UnmarshalText([]byte(name)); err != nil || a != Algorithm(i) || a.String() != name {
			t.Errorf("%s: %v, %v", name, a, err)
		}
		if text, err := a.MarshalText(); err != nil || string(text) != name {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	var a Algorithm
	if err := a.UnmarshalText([]byte("cubic")); err == nil || !strings.Contains(err.Error(), `"cubic"`) {
		t.Error(err)
	}
}
