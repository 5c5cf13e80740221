package programs

import (
	"fmt"
	"testing"
)

// ucx_perftest, over reliable connections, which begin with datagrams (rc_v), and over datagrams alone.
func TestUCX(t *testing.T) {
	fit(t)
	pairs := []pair{{
		name: "ucx_info", server: "true", client: "ucx_info -d -t rc_verbs",
		holds: []claim{clientPrints(`Device: ndk0:1`), clientPrints(`atomic_fadd: 64 bit`)},
	}}
	tests := []string{"tag_lat", "tag_bw -s 65536", "ucp_put_lat", "ucp_get", "ucp_fadd", "ucp_am_bw"}
	if all {
		tests = append(tests, "tag_lat -s 100000", "stream_bw", "stream_lat", "ucp_put_bw -s 4096", "ucp_get -s 65536", "ucp_add", "ucp_swap", "ucp_cswap", "ucp_am_lat")
	}
	for _, transports := range []string{"rc_v", "ud_v"} {
		for _, test := range tests {
			c := fmt.Sprintf("UCX_TLS=%s ucx_perftest -t %s -n 100 -w 1", transports, test)
			pairs = append(pairs, pair{name: transports + " " + test, server: c, client: c + " SERVER", holds: []claim{clientPrints(`^Final: +100 `)}})
		}
	}
	runAll(t, plainLab(t), pairs)
}
