package lab

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// TestHealth follows a healthcheck through results, each at an instant.
func TestHealth(t *testing.T) {
	type step struct {
		at    time.Duration
		ok    bool
		state string
		pause time.Duration
	}
	const ms, s = time.Millisecond, time.Second
	for name, test := range map[string]struct {
		retries int
		start   time.Duration
		steps   []step
	}{
		"at once":                     {3, 0, []step{{0, true, healthHealthy, 10 * s}}},
		"without a start period":      {2, 0, []step{{0, false, healthStarting, 10 * s}, {10 * s, false, healthUnhealthy, 10 * s}, {20 * s, true, healthHealthy, 10 * s}}},
		"one failure is no illness":   {2, 0, []step{{0, true, healthHealthy, 10 * s}, {10 * s, false, healthHealthy, 10 * s}, {20 * s, true, healthHealthy, 10 * s}, {30 * s, false, healthHealthy, 10 * s}}},
		"the first failure is enough": {1, 0, []step{{0, false, healthUnhealthy, 10 * s}}},
		"sooner in the start period": {1, 30 * s, []step{
			{0, false, healthStarting, 100 * ms}, {100 * ms, false, healthStarting, 200 * ms}, {300 * ms, false, healthStarting, 400 * ms}, {time.Second, true, healthHealthy, 10 * s},
			{11 * s, false, healthUnhealthy, 10 * s}, // which success has ended
		}},
		"up to the interval": {2, 60 * s, []step{
			{0, false, healthStarting, 100 * ms}, {1, false, healthStarting, 200 * ms}, {2, false, healthStarting, 400 * ms}, {3, false, healthStarting, 800 * ms},
			{4, false, healthStarting, 1600 * ms}, {5, false, healthStarting, 3200 * ms}, {6, false, healthStarting, 6400 * ms}, {7, false, healthStarting, 10 * s}, {8, false, healthStarting, 10 * s},
			{60 * s, false, healthStarting, 10 * s}, {70 * s, false, healthUnhealthy, 10 * s},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHealth(&topology.Healthcheck{Interval: 10 * s, Retries: test.retries, StartPeriod: test.start})
			for i, step := range test.steps {
				if pause := h.result(step.ok, step.at); h.state != step.state || pause != step.pause {
					t.Errorf("step %d: %s, next after %v, want %s, %v", i, h.state, pause, step.state, step.pause)
				}
			}
		})
	}
}
