package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
)

func TestMain(m *testing.M) {
	lab.Child()
	os.Exit(m.Run())
}

func TestRingIsATopology(t *testing.T) {
	for _, k := range []kind{plain, impaired} {
		topo, err := topology.Parse("ring.ndklab.yaml", []byte(ring("r", k, 5, "{name: w, from: h5, to: h1, operation: send, size: 4KiB, count: 1}")))
		if err != nil {
			t.Fatal(err)
		}
		if len(topo.Nodes) != 5 || len(topo.Links) != 5 || len(topo.Workloads) != 1 || topo.Links[4].Directions[0].None() != (k == plain) {
			t.Errorf("%s: %+v", k, topo)
		}
	}
}

func TestNumbers(t *testing.T) {
	if got, err := numbers("3,2000"); err != nil || len(got) != 2 || got[1] != 2000 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "2", "10,", "ten"} {
		if got, err := numbers(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func TestLimits(t *testing.T) {
	r := newResults()
	good := Row{Links: plain, Nodes: 500, Up: 1.5, Down: 0.8, NodePSS: 3072, IdleCPU: 100}
	r.add(good)
	if err := r.missed(); err != nil {
		t.Error(err)
	}
	bad := good
	bad.Up, bad.NodePSS = 1.6, 3073
	r.add(bad)
	if err := r.missed(); len(r.Missed) != 2 || err == nil || !strings.Contains(err.Error(), "plain ring of 500, up: 1.6 s, limit 1.5") {
		t.Errorf("%v", err)
	}
}

// A small ring is measured, and what it takes is plausible.
func TestCurve(t *testing.T) {
	row, err := curve(t.Context(), impaired, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	if row.Up <= 0 || row.Down <= 0 || row.CPU <= 0 || row.NodePSS < 100 || row.LabPSS < 100 {
		t.Errorf("%+v", row)
	}
}
