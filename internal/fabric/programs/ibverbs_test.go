package programs

import (
	"testing"
)

// Programs of ibverbs-utils, without the options for on-demand paging and timestamps, and without XRC, which are refused.
func TestIbverbsUtils(t *testing.T) {
	fit(t)
	pairs := []pair{
		{
			name: "ibv_devices", server: "true", client: "ibv_devices", holds: []claim{clientPrints(`^ +ndk0 +`)},
		},
		{
			// UCX 1.13 uses atomics of no other kind.
			name: "ibv_devinfo", server: "true", client: "ibv_devinfo -v",
			holds: []claim{clientPrints(`state:\s+PORT_ACTIVE`), clientPrints(`active_mtu:\s+4096`), clientPrints(`atomic_cap:\s+ATOMIC_HCA`)},
		},
	}
	for _, c := range []string{
		"ibv_rc_pingpong", "ibv_rc_pingpong -e", "ibv_rc_pingpong -N", "ibv_rc_pingpong -c -m 4096 -s 65536", "ibv_uc_pingpong",
		"ibv_uc_pingpong -e", "ibv_ud_pingpong", "ibv_ud_pingpong -e", "ibv_srq_pingpong", "ibv_srq_pingpong -e",
	} {
		c += " -g 0"
		pairs = append(pairs, pair{name: c, server: c, client: c + " SERVER", holds: []claim{clientPrints(`^\d+ iters in`), serverPrints(`^\d+ iters in`)}})
	}
	runAll(t, plainLab(t), pairs)
}
