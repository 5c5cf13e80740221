package simulate

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// parsed is a topology of a file, its seed 1 unless it has one.
func parsed(t testing.TB, file string) *topology.Topology {
	t.Helper()
	topo, err := topology.Parse("test.ndklab.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if !topo.HasSeed {
		topo.Seed, topo.HasSeed = 1, true
	}
	return topo.Draw(topo.Seed)
}

// up is a lab of a file.
func up(t testing.TB, file string) *lab {
	t.Helper()
	l, err := newLab(parsed(t, file), Options{}, unsharded)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pair is a link between the hosts a and b with those settings.
func pair(settings string) string {
	return `
topology:
  nodes: {a: {}, b: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], ` + settings + `}
`
}

// ipv6Pair is a pair without IPv4.
const ipv6Pair = `
topology:
  nodes: {a: {}, b: {}}
  links:
    - endpoints:
        - {node: a, interface: eth0, addresses: ["fd00::1/64"]}
        - {node: b, interface: eth0, addresses: ["fd00::2/64"]}
      mtu: 1500
`

// traffic is a workload from one host to another that is under way.
type traffic struct {
	lab    *lab
	spec   workload.Spec
	from   string
	to     string
	result *workload.Result
	err    error
}

// begin begins a workload.
func (l *lab) begin(t testing.TB, from, to string, spec workload.Spec) *traffic {
	t.Helper()
	path, ok := l.topo.Path(from, to)
	if !ok {
		t.Fatalf("no path from %s to %s", from, to)
	}
	spec.Name, spec.Seed = from+to, 7
	at := netip.AddrPortFrom(path.To.Address, 18515)
	w := &traffic{lab: l, spec: spec, from: from, to: to}
	l.Serve(to, spec, at, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	l.Run(from, spec, path.From.Address, at, func(r workload.Result, err error) { w.result, w.err = &r, err })
	return w
}

// end waits for the workload to end, for a minute of the lab.
func (w *traffic) end(t testing.TB) *workload.Result {
	t.Helper()
	if !w.lab.clock.RunUntil(func() bool { return w.result != nil }, time.Minute) {
		t.Fatal("the workload does not end")
	}
	return w.result
}

// device is the adapter of a host; nil if it is down.
func (l *lab) device(name string) *provider.Miniport {
	if life := l.network.byName[name].life; life != nil {
		return life.device
	}
	return nil
}

// linksNow is the state of the lab's links.
func (l *lab) linksNow(t testing.TB) (all []report.Link) {
	t.Helper()
	l.Links(func(links []report.Link, err error) { all = links })
	l.clock.Run(0)
	return all
}

func TestTrafficArrives(t *testing.T) {
	for _, c := range []struct{ name, file string }{
		{"link", pair("delay: 1ms, rate: 10gbit")},
		{"plain", pair("mtu: 4200")},
		{"IPv6", ipv6Pair},
	} {
		for _, operation := range []topology.Operation{topology.Send, topology.Write, topology.Read} {
			l := up(t, c.file)
			w := l.begin(t, "a", "b", workload.Spec{Operation: operation, Size: 10000, Depth: 4, Count: 100, Verify: true})
			if r := w.end(t); w.err != nil || r.Messages != 100 || r.Errors != 0 {
				t.Errorf("%s: %s: %+v, %v", c.name, operation, r, w.err)
			}
		}
	}
}
