package adapter

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/congestion"
)

// congestionParameters are the keys of dcqcn, dctcp, bdp and cnp: both ends of their ranges, as files write
// them, and what the device's configuration then has.
var congestionParameters = []struct {
	in, key     string
	least, most string
	min, max    any
	of          func(*congestion.Config) any
}{
	{"dcqcn", "clamp_tgt_rate", "false", "true", false, true, func(c *congestion.Config) any { return c.DCQCN.ClampTgtRate }},
	{"dcqcn", "clamp_tgt_rate_after_time_inc", "false", "true", false, true, func(c *congestion.Config) any { return c.DCQCN.ClampTgtRateAfterTimeInc }},
	{"dcqcn", "rpg_time_reset", "1us", "10s", time.Microsecond, 10 * time.Second, func(c *congestion.Config) any { return c.DCQCN.RPGTimeReset }},
	{"dcqcn", "rpg_byte_reset", "0B", "1TiB", int64(0), int64(1 << 40), func(c *congestion.Config) any { return c.DCQCN.RPGByteReset }},
	{"dcqcn", "rpg_threshold", "1", "31", 1, 31, func(c *congestion.Config) any { return c.DCQCN.RPGThreshold }},
	{"dcqcn", "rpg_max_rate", "0bit", "1tbit", 0.0, 1e12, func(c *congestion.Config) any { return c.DCQCN.RPGMaxRate }},
	{"dcqcn", "rpg_ai_rate", "1kbit", "1tbit", 1e3, 1e12, func(c *congestion.Config) any { return c.DCQCN.RPGAIRate }},
	{"dcqcn", "rpg_hai_rate", "1kbit", "1tbit", 1e3, 1e12, func(c *congestion.Config) any { return c.DCQCN.RPGHAIRate }},
	{"dcqcn", "rpg_gd", "10", "11", 10, 11, func(c *congestion.Config) any { return c.DCQCN.RPGGD }},
	{"dcqcn", "rpg_min_dec_fac", "0%", "100%", 0.0, 1.0, func(c *congestion.Config) any { return c.DCQCN.RPGMinDecFac }},
	{"dcqcn", "rpg_min_rate", "1kbit", "1tbit", 1e3, 1e12, func(c *congestion.Config) any { return c.DCQCN.RPGMinRate }},
	{"dcqcn", "rate_to_set_on_first_cnp", "0bit", "1tbit", 0.0, 1e12, func(c *congestion.Config) any { return c.DCQCN.RateToSetOnFirstCNP }},
	{"dcqcn", "dce_tcp_g", "0", "1023", 1.0, 1.0 / 1024, func(c *congestion.Config) any { return c.DCQCN.DCETCPG }},
	{"dcqcn", "dce_tcp_rtt", "1us", "10s", time.Microsecond, 10 * time.Second, func(c *congestion.Config) any { return c.DCQCN.DCETCPRTT }},
	{"dcqcn", "rate_reduce_monitor_period", "0us", "10s", time.Duration(0), 10 * time.Second, func(c *congestion.Config) any { return c.DCQCN.RateReduceMonitorPeriod }},
	{"dcqcn", "initial_alpha_value", "0", "1023", 0.0, 1023.0 / 1024, func(c *congestion.Config) any { return c.DCQCN.InitialAlphaValue }},
	{"dcqcn", "slow_restart", "false", "true", false, true, func(c *congestion.Config) any { return c.DCQCN.SlowRestart }},
	{"dctcp", "g", "0%", "100%", 0.0, 1.0, func(c *congestion.Config) any { return c.DCTCP.G }},
	{"dctcp", "rtt", "1us", "10s", time.Microsecond, 10 * time.Second, func(c *congestion.Config) any { return c.DCTCP.RTT }},
	{"bdp", "rtt", "1us", "10s", time.Microsecond, 10 * time.Second, func(c *congestion.Config) any { return c.BDP.RTT }},
	{"cnp", "dscp", "0", "63", uint8(0), uint8(63), func(c *congestion.Config) any { return c.CNP.DSCP }},
	{"cnp", "min_time", "0us", "10s", time.Duration(0), 10 * time.Second, func(c *congestion.Config) any { return c.CNP.MinTime }},
	{"cnp", "delay", "0us", "10s", time.Duration(0), 10 * time.Second, func(c *congestion.Config) any { return c.CNP.Delay }},
	{"cnp", "per", "qp", "port", congestion.PerQP, congestion.PerPort, func(c *congestion.Config) any { return c.CNP.Per }},
}

// TestCongestionParameters sets each parameter to both ends of its range: a device starts with
// it, and has it.
func TestCongestionParameters(t *testing.T) {
	if n := reflect.TypeFor[congestion.DCQCN]().NumField() + reflect.TypeFor[congestion.DCTCP]().NumField() + reflect.TypeFor[congestion.BDP]().NumField() + reflect.TypeFor[congestion.CNP]().NumField(); n != len(congestionParameters) {
		t.Errorf("package congestion has %d parameters, but %d are tested", n, len(congestionParameters))
	}
	for _, p := range congestionParameters {
		of := p.in
		if of == "cnp" {
			of = "dcqcn"
		}
		for value, want := range map[string]any{p.least: p.min, p.most: p.max} {
			cfg := Config(adapterOf(t, "congestion: "+of+", "+p.in+": {"+p.key+": "+value+"}"))
			if got := p.of(&cfg.Congestion); got != want {
				t.Errorf("%s: %s: %s makes %v, want %v", p.in, p.key, value, got, want)
			}
			if err := startable(cfg); err != nil {
				t.Errorf("%s: %s: %s: %v", p.in, p.key, value, err)
			}
		}
	}
}

// TestCongestionControl has whole configurations.
func TestCongestionControl(t *testing.T) {
	connectX := congestion.Config{Algorithm: congestion.WithDCQCN, DCQCN: congestion.ConnectX(), DSCP: 26, CNP: congestion.ConnectXCNP()}
	paper := congestion.Config{Algorithm: congestion.WithDCQCN, DCQCN: congestion.Paper(), DSCP: 26, CNP: congestion.PaperCNP()}
	dctcp := congestion.Config{Algorithm: congestion.WithDCTCP, DCTCP: congestion.DefaultDCTCP(), DSCP: 26, CNP: congestion.DCTCPCNP()}
	bdp := congestion.Config{Algorithm: congestion.WithBDP}
	with := func(c congestion.Config, change func(*congestion.Config)) congestion.Config {
		change(&c)
		return c
	}
	for block, want := range map[string]congestion.Config{
		"":                            {},
		"congestion: window":          {},
		"congestion: window, dscp: 8": {DSCP: 8},
		"congestion: none":            {Algorithm: congestion.None},
		"dscp: 46":                    {DSCP: 46},
		"congestion: dctcp":           dctcp,
		"congestion: dctcp, dctcp: {g: 6.25%}, cnp: {dscp: 48, min_time: 0us, delay: 0us, per: qp}": dctcp,
		"congestion: dctcp, dctcp: {rtt: 12us}, cnp: {dscp: 1}, dscp: 2": with(dctcp, func(c *congestion.Config) {
			c.DCTCP.RTT, c.CNP.DSCP, c.DSCP = 12*time.Microsecond, 1, 2
		}),
		"congestion: bdp":                     bdp,
		"congestion: bdp, bdp: {rtt: 12us}":   with(bdp, func(c *congestion.Config) { c.BDP.RTT = 12 * time.Microsecond }),
		"congestion: dcqcn":                   connectX,
		"congestion: dcqcn, dcqcn: connectx":  connectX,
		"congestion: dcqcn, dcqcn: {}":        connectX,
		"congestion: dcqcn, dcqcn: paper":     paper,
		"congestion: dcqcn, cnp: {}, dscp: 0": with(connectX, func(c *congestion.Config) { c.DSCP = 0 }),
		"congestion: dcqcn, dcqcn: {preset: paper, rpg_ai_rate: 10mbit}, cnp: {delay: 2us}": with(paper, func(c *congestion.Config) {
			c.DCQCN.RPGAIRate, c.CNP.Delay = 10e6, 2*time.Microsecond
		}),
		"congestion: dcqcn, dcqcn: {rpg_max_rate: 100kbit}": with(connectX, func(c *congestion.Config) {
			c.DCQCN.RPGMaxRate, c.DCQCN.RPGMinRate = 100e3, 100e3
		}),
		"congestion: dcqcn, cnp: {per: address}": with(connectX, func(c *congestion.Config) { c.CNP.Per = congestion.PerAddress }),
	} {
		cfg := Config(adapterOf(t, block))
		if diff := cmp.Diff(want, cfg.Congestion); diff != "" {
			t.Errorf("%q (-want +got):\n%s", block, diff)
		}
	}
}

// TestDocumentedParameters has every parameter, as docs/topology.md has it of a preset, make that
// preset.
func TestDocumentedParameters(t *testing.T) {
	const connectX = "congestion: dcqcn, dcqcn: {preset: paper, clamp_tgt_rate: false, clamp_tgt_rate_after_time_inc: true, rpg_time_reset: 300us, rpg_byte_reset: 0B, rpg_threshold: 1, rpg_max_rate: 0bit, rpg_ai_rate: 5mbit, rpg_hai_rate: 50mbit, rpg_gd: 11, " +
		"rpg_min_dec_fac: 50%, rpg_min_rate: 1mbit, rate_to_set_on_first_cnp: 0bit, dce_tcp_g: 1019, dce_tcp_rtt: 1us, rate_reduce_monitor_period: 4us, initial_alpha_value: 1023, slow_restart: false}, cnp: {dscp: 48, min_time: 4us, delay: 0us, per: qp}"
	const paper = "congestion: dcqcn, dcqcn: {preset: connectx, clamp_tgt_rate: true, clamp_tgt_rate_after_time_inc: false, rpg_time_reset: 55us, rpg_byte_reset: 10MB, rpg_threshold: 5, rpg_max_rate: 0bit, rpg_ai_rate: 40mbit, rpg_hai_rate: 200mbit, rpg_gd: 11, " +
		"rpg_min_dec_fac: 0%, rpg_min_rate: 1mbit, rate_to_set_on_first_cnp: 0bit, dce_tcp_g: 1020, dce_tcp_rtt: 55us, rate_reduce_monitor_period: 0us, slow_restart: false}, cnp: {dscp: 48, min_time: 50us, delay: 0us, per: qp}"
	for block, want := range map[string]string{connectX: "congestion: dcqcn", paper: "congestion: dcqcn, dcqcn: paper"} {
		got, want := Config(adapterOf(t, block)).Congestion, Config(adapterOf(t, want)).Congestion
		if block == paper {
			got.DCQCN.InitialAlphaValue = want.DCQCN.InitialAlphaValue // 1, for which ten bits have no number
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", block, diff)
		}
	}
}
