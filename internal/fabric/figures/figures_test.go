package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// The texts that programs of Debian 12 have printed have these figures.
func TestParse(t *testing.T) {
	for _, tt := range []struct {
		file string
		want Figures
	}{
		{"ib_write_bw.txt", Figures{Messages: 5000, Bytes: 5000 * 65536, Gbps: 267.43 * 8 * (1 << 20) / 1e9, MessageRate: 4279}},
		{"ib_write_bw--report_gbits-D1.txt", Figures{Messages: 11804, Bytes: 11804 * 65536, Gbps: 6.19, MessageRate: 11801}},
		{"ib_send_lat.txt", Figures{Messages: 500, Bytes: 1000, Latency: report.Latency{Min: 12.19, Max: 88.45, P50: 13.34, Mean: 16.39, P99: 45.04, P999: 88.45}}},
		{"ib_send_lat-nan.txt", Figures{Messages: 1000, Bytes: 2000, Latency: report.Latency{Min: 233.18, Max: 89360.11, P50: 724.98, Mean: 1856.06, P99: 19165.84, P999: 89360.11}}},
		{"ib_send_lat-D1.txt", Figures{Messages: 27983, Bytes: 2 * 27983, MessageRate: 27982.57, Latency: report.Latency{Mean: 17.87}}},
		{"fio.json", Figures{Messages: 256, Bytes: 1 << 20, Gbps: 8.388608, MessageRate: 256000,
			Latency: report.Latency{Min: 0.01, Mean: 0.053207031, P50: 0.02, P90: 0.02, P99: 0.03, P999: 9.792, P9999: 9.792, Max: 9.754}}},
		{"iperf3-J.json", Figures{Bytes: 1964244992, Gbps: 15.700159495803188}},
		{"ucx_perftest-tag_lat.txt", Figures{Messages: 1000, Gbps: 0.02 * 8 * (1 << 20) / 1e9, MessageRate: 2258, Latency: report.Latency{P50: 88.983, Mean: 442.898}}},
		{"ucx_perftest-tag_bw.txt", Figures{Messages: 1000, Gbps: 35.74 * 8 * (1 << 20) / 1e9, MessageRate: 572}},
		{"qperf.txt", Figures{Gbps: 1.71 * 8, Latency: report.Latency{Mean: 168}}},
		{"ibv_rc_pingpong.txt", Figures{Messages: 1000, Bytes: 8192000, Gbps: 0.26661, Latency: report.Latency{Mean: 122.91}}},
	} {
		got, known := Parse(read(t, tt.file))
		if !known || rounded(&got) != rounded(&tt.want) {
			t.Errorf("%s: %v\ngot  %s\nwant %s", tt.file, known, rounded(&got), rounded(&tt.want))
		}
	}
}

// rounded is figures as text, to some digits.
func rounded(f *Figures) string {
	return fmt.Sprintf("%d %d %.8g %.8g %.5g %d", f.Messages, f.Bytes, f.Gbps, f.MessageRate, f.Latency, len(f.Steps))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A run over all sizes has a step for each, and the rates of the last.
func TestSweep(t *testing.T) {
	got, known := Parse(read(t, "ib_write_bw-a.txt"))
	if !known || len(got.Steps) != 23 || got.Messages != 23*200 {
		t.Fatalf("%v, %d steps, %d messages", known, len(got.Steps), got.Messages)
	}
	if s := got.Steps[16]; s.Size != 131072 || s.Messages != 200 || s.Seconds != 200/7563.0 {
		t.Errorf("%+v", s)
	}
	if last := got.Steps[22]; last.Size != 8<<20 || got.Gbps != last.Gbps || last.Gbps == 0 {
		t.Errorf("%+v, all %v", last, got.Gbps)
	}
}

// Text without figures has none, cut off or not.
func TestNoFigures(t *testing.T) {
	for _, text := range []string{
		"", "hello\n", "#bytes #iterations\n", "#bytes #iterations\n65536\n", "1 2 3\n", "{", "{}", `{"fio version": "x", "jobs": [{}]}`, `{"fio version": 3}`,
		`{"end": {}}`, "Final: 1 2\n", "Final: a b c d e f g h\n", "  bw = lots of GB/sec\n", "12 bytes in 1 seconds = 3 Mbit/sec\n",
		"#bytes #iterations BW average[furlongs]\n64 1 -1\n",
	} {
		if f, known := Parse(text); known {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// Programs of one workload: rates add up, latencies do not.
func TestAdd(t *testing.T) {
	a := Figures{Messages: 1, Gbps: 2, MessageRate: 3, Latency: report.Latency{Min: 5, P99: 9}, Steps: []report.Step{{Size: 1}}}
	b := Figures{Messages: 10, Gbps: 20, MessageRate: 30, Latency: report.Latency{Min: 4, P99: 8, Max: 12}}
	var sum Figures
	sum.Add(&a)
	if len(sum.Steps) != 1 {
		t.Errorf("%+v", sum)
	}
	sum.Add(&b)
	if want := (Figures{Messages: 11, Gbps: 22, MessageRate: 33, Latency: report.Latency{Min: 4, P99: 9, Max: 12}}); rounded(&sum) != rounded(&want) {
		t.Errorf("%+v", sum)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, known := Parse(text)
		if !known && !got.none() {
			t.Errorf("%+v of %q", got, strings.TrimSpace(text))
		}
	})
}
