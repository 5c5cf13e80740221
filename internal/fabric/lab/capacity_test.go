package lab

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

func TestCapacity(t *testing.T) {
	usual := agentsAtOnce
	t.Cleanup(func() { agentsAtOnce = usual })
	agentsAtOnce = 1001
	topo := &topology.Topology{Name: "l", Nodes: make([]topology.Node, 1001), Links: make([]topology.Link, 1100)}
	topo.Nodes[1000].Kind = topology.Switch // of which there are no processes
	for i := range topo.Links[:1050] {
		topo.Links[i].Directions[1].Delay = 1
	}
	topo.Links[0].Engine = topology.Netem
	enough := func() capacity {
		return capacity{files: 4296, threads: 6500, ownThreads: 6000, running: 500, namespaces: map[string]uint64{
			"user.max_net_namespaces": 1001, "user.max_uts_namespaces": 1001, "user.max_mnt_namespaces": 1001, "user.max_pid_namespaces": 1001,
		}}
	}
	c := enough()
	if err := c.check(topo); err != nil {
		t.Errorf("just enough: %v", err)
	}
	for _, test := range []struct {
		want   string
		change func(*capacity)
	}{
		{"4296 open files in one process, of which 4295 are allowed", func(c *capacity) { c.files-- }},
		{"6500 threads with those there are, of which 6499 are allowed", func(c *capacity) { c.threads-- }},
		{"6501 threads with those there are, of which 6500 are allowed", func(c *capacity) { c.running++ }},
		{"6000 threads of its user, of which 5999 are allowed", func(c *capacity) { c.ownThreads-- }},
		{"1001 namespaces of a kind, of which 1000 are allowed: raise user.max_uts_namespaces", func(c *capacity) { c.namespaces["user.max_uts_namespaces"]-- }},
		{"1001 namespaces of a kind, of which 1000 are allowed: raise user.max_pid_namespaces", func(c *capacity) { c.namespaces["user.max_pid_namespaces"]-- }},
	} {
		c := enough()
		test.change(&c)
		err := c.check(topo)
		problem := (*control.Error)(nil)
		if !errors.As(err, &problem) || problem.Code != control.Unable || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want one that says %q", err, test.want)
		}
	}
}

// A node without an agent takes a file for each of its addresses, or one, and no threads.
func TestCapacityIdle(t *testing.T) {
	topo := &topology.Topology{Name: "l", Nodes: make([]topology.Node, 1001)}
	topo.Nodes[0].Interfaces = []topology.Interface{{Addresses: make([]netip.Prefix, 3)}, {Addresses: make([]netip.Prefix, 2)}}
	topo.Nodes[1].Memory = 1 << 30 // it has an agent
	c := capacity{files: 100 + 4 + 5 + 999, threads: 6, ownThreads: 6, namespaces: map[string]uint64{}}
	for _, name := range namespaceLimits {
		c.namespaces[name] = 1002
	}
	if err := c.check(topo); err != nil {
		t.Errorf("just enough: %v", err)
	}
	c.files--
	if err := c.check(topo); err == nil || !strings.Contains(err.Error(), "1108 open files") {
		t.Errorf("too few files: %v", err)
	}
}

func TestSystemCapacity(t *testing.T) {
	c := systemCapacity()
	if c.files == math.MaxUint64 || c.files == 0 || c.threads == math.MaxUint64 || c.running == 0 || c.namespaces["user.max_net_namespaces"] == 0 {
		t.Errorf("%+v", c)
	}
	if got := sysctl("kernel.ndklab_has_none"); got != math.MaxUint64 {
		t.Errorf("a limit that does not exist is %d", got)
	}
}
