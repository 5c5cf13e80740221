package programs

import (
	"testing"
)

// qperf, which forks for each test. Of unreliable services it has none that works with RoCE: it knows no GIDs but by
// the connection manager, which it uses for reliable ones alone.
func TestQperf(t *testing.T) {
	fit(t)
	tests := map[string]string{
		"rc_bi_bw": `^ +bw += +`, "rc_lat": `^ +latency += +`, "rc_rdma_read_bw": `^ +bw += +`, "rc_fetch_add_mr": `^ +msg_rate += +`,
	}
	if all {
		for _, more := range []string{"rc_bw", "rc_rdma_write_bw"} {
			tests[more] = `^ +bw += +`
		}
		tests["rc_rdma_read_lat"], tests["rc_compare_swap_mr"] = `^ +latency += +`, `^ +msg_rate += +`
	}
	var pairs []pair
	for test, figure := range tests {
		pairs = append(pairs, pair{
			name: test, server: "qperf", client: "qperf -t 1 SERVER -cm1 " + test, endless: true, holds: []claim{clientPrints(figure)},
		})
	}
	runAll(t, plainLab(t), pairs)
}
