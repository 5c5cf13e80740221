package programs

import (
	"testing"
)

// fi_pingpong, which compares what arrives, over each kind of endpoint that libfabric makes of verbs.
func TestLibfabric(t *testing.T) {
	fit(t)
	pairs := []pair{{
		name: "fi_info", server: "true", client: "fi_info -p verbs",
		holds: []claim{clientPrints(`type: FI_EP_MSG`), clientPrints(`type: FI_EP_DGRAM`)},
	}}
	for _, endpoint := range []string{"-p verbs -e msg", "-p verbs -e dgram -d ndk0-dgram", "-p 'verbs;ofi_rxm' -e rdm", "-p 'verbs;ofi_rxd' -e rdm"} {
		c := "fi_pingpong -c -I 100 -S 1024 " + endpoint
		pairs = append(pairs, pair{name: endpoint, server: c, client: c + " SERVER", holds: []claim{clientPrints(`^1k +100 +=100 `)}})
	}
	runAll(t, plainLab(t), pairs)
}
