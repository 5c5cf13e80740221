package topology

import (
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

func TestFramesAreTheAdapters(t *testing.T) {
	for mtu := 1280; mtu <= 9000; mtu++ {
		if got, want := (&Node{Kind: Host}).frame(mtu), roce.PathMTU(mtu); got != want {
			t.Fatalf("MTU %d: frames of %d bytes, an adapter has %d", mtu, got, want)
		}
	}
}

// TestNarrowWays has two hosts that are two routers apart, over a link of MTU 1500.
func TestNarrowWays(t *testing.T) {
	const file = `topology:
  defaults: {link: {mtu: 4200}}
  nodes:
    a: {adapter: ADAPTER}
    b:
    r0: {kind: router}
    r1: {kind: router}
  links:
    - endpoints: ["a:eth0", "r0:a"]
    - endpoints: ["b:eth0", "r1:b"]
    - {endpoints: ["r0:r", "r1:r"], mtu: 1500}
    - {endpoints: ["r0:wide", "r1:wide"]}
`
	for adapter, fits := range map[string]bool{
		"{}": false, "{roce_frame_size: 2048}": false, "{roce_frame_size: 1024}": true, "{network_direct: false}": true,
	} {
		_, err := Parse("x.yaml", []byte(strings.ReplaceAll(file, "ADAPTER", adapter)))
		if fits != (err == nil) {
			t.Errorf("%s: error %v", adapter, err)
		}
	}
	// Nobody goes over a narrow link that is no shortest way.
	detour := strings.ReplaceAll(file, `["r0:r", "r1:r"]`, `["r0:r", "r2:r"]`) + `    - endpoints: ["r2:s", "r1:s"]` + "\n"
	detour = strings.ReplaceAll(detour, "    r0:", "    r2: {kind: router}\n    r0:")
	parsed(t, strings.ReplaceAll(detour, "ADAPTER", "{}"))
}
