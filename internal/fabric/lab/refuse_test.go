package lab

import (
	"errors"
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// TestRefusesSharedBuffers has no lab made or changed that a file with a shared buffer is for.
func TestRefusesSharedBuffers(t *testing.T) {
	topo, err := topology.Parse("x.yaml", []byte("topology: {nodes: {s: {kind: switch, buffer: hpcc}}}"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "x.yaml:1:46: a node has a shared buffer, expected none in a lab: only a simulation (--simulate) has such so far"
	_, started := Start(t.Context(), topo, Options{})
	for what, err := range map[string]error{"Refuse": Refuse(topo), "Start": started, "Apply": new(Lab).Apply(t.Context(), topo, nil)} {
		if list := (topology.ErrorList)(nil); !errors.As(err, &list) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	if err := Refuse(new(topology.Topology)); err != nil {
		t.Error(err)
	}
}
