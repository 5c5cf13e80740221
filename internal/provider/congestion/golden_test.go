package congestion

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"
	"time"
)

// A row is an event of a trace of testdata. Rates are in Gb/s.
type row struct {
	at                        time.Duration
	event                     string
	targetBefore, rateBefore  float64
	target, rate, alphaBefore float64
}

// readTrace returns the rows of a trace.
func readTrace(t *testing.T, name string) []row {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) float64 {
		if s == "" {
			return math.NaN() // not in the trace
		}
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	var rows []row
	for _, r := range records[1:] {
		rows = append(rows, row{
			time.Duration(number(r[0])), r[1], number(r[2]), number(r[3]), number(r[4]), number(r[5]), number(r[6]),
		})
	}
	return rows
}

// next carries out the next change of the rate, if it is due, and returns it as a row.
func (r *reactionPoint) next(now time.Duration) (row, bool) {
	at, ok := r.Deadline()
	if !ok || at > now {
		return row{}, false
	}
	e := row{at: at, targetBefore: r.target / 1e9, rateBefore: r.rate / 1e9, alphaBefore: math.NaN()}
	switch stage := int(r.timeStage); {
	case at != r.increaseAt:
		e.event = "rate dec"
	case stage < r.p.RPGThreshold:
		e.event = "fast recovery"
	case stage == r.p.RPGThreshold:
		e.event = "active inc"
	default:
		e.event = "hyper inc"
	}
	e.rate = r.Rate(at) / 1e9
	e.target = r.target / 1e9
	return e, true
}

// Rates of traces are rounded to a thousandth of a Gb/s.
const rounding = 0.000501

// TestGoldenTraces replays the CNPs of traces of another reaction point, and expects each change of
// its rate at its very instant, and no other (congestion.md d, row 1).
func TestGoldenTraces(t *testing.T) {
	for _, trace := range []struct {
		file string
		line float64
		DCQCN
		events, cnps int
	}{
		{file: "testdata/gold-vendor-4to1-10G.csv", line: 10e9, events: 375, cnps: 190, DCQCN: DCQCN{
			ClampTgtRateAfterTimeInc: true,
			RPGTimeReset:             300 * time.Microsecond,
			RPGThreshold:             1,
			RPGAIRate:                2 * mbit,  // 5 at 25 Gb/s
			RPGHAIRate:               20 * mbit, // 50 at 25 Gb/s
			RPGGD:                    11,
			RPGMinRate:               100 * mbit,
			DCETCPG:                  1.0 / 256,
			DCETCPRTT:                1 * time.Microsecond,
			RateReduceMonitorPeriod:  4 * time.Microsecond,
			InitialAlphaValue:        1,
		}},
		{file: "testdata/gold-paper-4to1-40G.csv", line: 40e9, events: 1443, cnps: 1286, DCQCN: DCQCN{
			ClampTgtRateAfterTimeInc: true,
			RPGTimeReset:             55 * time.Microsecond,
			RPGThreshold:             5,
			RPGAIRate:                40 * mbit,
			RPGHAIRate:               200 * mbit,
			RPGGD:                    11,
			RPGMinRate:               10 * mbit,
			DCETCPG:                  1.0 / 256,
			DCETCPRTT:                50 * time.Microsecond,
			RateReduceMonitorPeriod:  50 * time.Microsecond,
			InitialAlphaValue:        1,
		}},
	} {
		t.Run(trace.file, func(t *testing.T) {
			if err := trace.Validate(); err != nil {
				t.Fatal(err)
			}
			rows := readTrace(t, trace.file)
			r := newReactionPoint(&trace.DCQCN, trace.line)
			var worstRate, worstAlpha float64
			cnps := 0
			for _, want := range rows {
				var got row
				if want.event == "cnp" {
					cnps++
					if e, ok := r.next(want.at); ok {
						t.Fatalf("%+v, which the trace has not, before %+v", e, want)
					}
					r.Notified(want.at)
					got = row{at: want.at, event: "cnp", rate: r.rate / 1e9, target: r.target / 1e9, alphaBefore: r.alpha}
				} else {
					var ok bool
					if got, ok = r.next(want.at); !ok {
						t.Fatalf("nothing happens, want %+v", want)
					}
				}
				if got.at != want.at || got.event != want.event {
					t.Fatalf("%+v, want %+v", got, want)
				}
				for _, x := range [][2]float64{
					{got.targetBefore, want.targetBefore}, {got.rateBefore, want.rateBefore},
					{got.target, want.target}, {got.rate, want.rate},
				} {
					if math.IsNaN(x[1]) {
						continue
					}
					difference := math.Abs(x[0] - x[1])
					worstRate = max(worstRate, difference)
					if difference > rounding {
						t.Errorf("%+v, want %+v", got, want)
					}
				}
				if math.IsNaN(want.alphaBefore) {
					continue
				}
				difference := math.Abs(got.alphaBefore - want.alphaBefore)
				worstAlpha = max(worstAlpha, difference)
				if difference > 1e-6 {
					t.Errorf("alpha %v, want %+v", got.alphaBefore, want)
				}
			}
			if len(rows) != trace.events || cnps != trace.cnps {
				t.Errorf("%d events and %d CNPs, want %d and %d", len(rows), cnps, trace.events, trace.cnps)
			}
			t.Logf("%d events; worst difference %.3f Mb/s, of alpha %.2g", len(rows), worstRate*1e3, worstAlpha)
		})
	}
}
