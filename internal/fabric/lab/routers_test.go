package lab

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// ip runs ip(8) in a node and returns what it says; "" if there is no such program.
func ip(t testing.TB, l *Lab, nodeName string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Log("ip is not installed; continuous integration has it")
		return ""
	}
	r := runCommand(t, l, nodeName, node.Command{Args: append([]string{"ip"}, args...)})
	var out bytes.Buffer
	if _, err := io.Copy(&out, r.stdout); err != nil {
		t.Fatal(err)
	}
	r.wait(t)
	return out.String()
}

// routed is a chain of two routers between a host and a switch with two more
// hosts: a - r1 - r2 - sw, at which b and c are.
func routed(name string) fabric {
	f := newFabric(name)
	f.nodes(topology.Host, "a b c")
	f.nodes(topology.Router, "r1 r2")
	f.nodes(topology.Switch, "sw")
	f.link("a:eth0 10.1.0.1/24 fd00:1::1/64", "r1:eth0 10.1.0.2/24 fd00:1::2/64")
	f.link("r1:eth1 10.2.0.1/24 fd00:2::1/64", "r2:eth0 10.2.0.2/24 fd00:2::2/64")
	f.link("sw:eth0", "r2:eth1 10.3.0.1/24 fd00:3::1/64")
	f.link("b:eth0 10.3.0.2/24 fd00:3::2/64", "sw:eth1")
	f.link("c:eth0 10.3.0.3/24 fd00:3::3/64", "sw:eth2")
	for family, prefix := range map[string]string{"10.%d.0.%d": "10.%d.0.0/24", "fd00:%d::%d": "fd00:%d::/64"} {
		hop := func(net, host int) string { return fmt.Sprintf(family, net, host) }
		f.route("a", fmt.Sprintf(prefix, 2), hop(1, 2))
		f.route("a", fmt.Sprintf(prefix, 3), hop(1, 2))
		f.route("r1", fmt.Sprintf(prefix, 3), hop(2, 2))
		f.route("r2", fmt.Sprintf(prefix, 1), hop(2, 1))
		f.route("b c", fmt.Sprintf(prefix, 1), hop(3, 1))
		f.route("b c", fmt.Sprintf(prefix, 2), hop(3, 1))
	}
	return f
}

// TestRouters has packets of every kind cross routers and a switch, links with
// impairments among them.
func TestRouters(t *testing.T) {
	f := routed(uniqueName(t))
	f.Links[1].Directions[0].Delay = 2_000_000 // ns
	f.Links[3].Directions[1].Loss.Rate = 0.02
	f.Links[1].Tolerance = patient
	f.write("one", "a", "b", 300)
	f.write("two", "c", "a", 300)
	l := start(t, f.Topology)
	echoes(t, l, "a", "b", "10.3.0.2:5001", "[fd00:3::2]:5001")
	echoes(t, l, "a", "c", "10.3.0.3:5001", "[fd00:3::3]:5001")
	superPackets(t, l, "a", "c", "10.3.0.3:5003")
	superPackets(t, l, "c", "a", "[fd00:1::1]:5003")
	streams(t, l, "a", "b", "10.3.0.2:5002", 8<<20)
	if r := runLab(t, l); !r.Passed {
		t.Errorf("%+v", r.Workloads)
	}
	// A link between routers is probed as any other.
	v := verified(t, l, "r2:eth0", Probes{Count: 200})
	if there, back := v.Directions[0], v.Directions[1]; !v.Passed || there.From != "r1:eth1" || there.Received != 200 || back.Received != 200 || there.Delay.Min < 2000 {
		t.Errorf("%+v", v)
	}
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range in.Nodes {
		if n.State != nodeReady || n.Reason != "" {
			t.Errorf("%+v", n)
		}
	}
	if got := ip(t, l, "r1", "route", "show", "10.3.0.0/24"); got != "" && !strings.HasPrefix(got, "10.3.0.0/24 via 10.2.0.2 dev eth1 proto static") {
		t.Errorf("route: %q", got)
	}
}

// spines is hosts a and b behind routers of their own, between which there are two
// ways: over s1 and over s2. The first links are a-r1, r1-s1, r1-s2, s1-r2, s2-r2, r2-b.
func spines(name string) fabric {
	f := newFabric(name)
	f.nodes(topology.Host, "a b")
	f.nodes(topology.Router, "r1 r2 s1 s2")
	f.link("a:eth0 10.1.0.1/24 fd00:1::1/64", "r1:eth0 10.1.0.2/24 fd00:1::2/64")
	f.link("r1:eth1 10.2.0.1/24 fd00:2::1/64", "s1:eth0 10.2.0.2/24 fd00:2::2/64")
	f.link("r1:eth2 10.3.0.1/24 fd00:3::1/64", "s2:eth0 10.3.0.2/24 fd00:3::2/64")
	f.link("s1:eth1 10.4.0.1/24 fd00:4::1/64", "r2:eth1 10.4.0.2/24 fd00:4::2/64")
	f.link("s2:eth1 10.5.0.1/24 fd00:5::1/64", "r2:eth2 10.5.0.2/24 fd00:5::2/64")
	f.link("r2:eth0 10.6.0.2/24 fd00:6::2/64", "b:eth0 10.6.0.1/24 fd00:6::1/64")
	for family, prefix := range map[string]string{"10.%d.0.%d": "10.%d.0.0/24", "fd00:%d::%d": "fd00:%d::/64"} {
		hop := func(net, host int) string { return fmt.Sprintf(family, net, host) }
		one, six := fmt.Sprintf(prefix, 1), fmt.Sprintf(prefix, 6)
		f.route("a", six, hop(1, 2))
		f.route("b", one, hop(6, 2))
		f.route("r1", six, hop(2, 2), hop(3, 2))
		f.route("r2", one, hop(4, 1), hop(5, 1))
		f.route("s1", six, hop(4, 2))
		f.route("s1", one, hop(2, 1))
		f.route("s2", six, hop(5, 2))
		f.route("s2", one, hop(3, 1))
	}
	return f
}

// ways returns the numbers of packets that went from a to b, and back, over s1 and over s2.
func ways(t testing.TB, l *Lab) (ways [2][2]uint64) {
	t.Helper()
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for s := range 2 {
		ways[0][s] = in.Links[1+s].Directions[0].Packets
		ways[1][s] = in.Links[3+s].Directions[1].Packets
	}
	return ways
}

// only makes a topology IPv6 alone, or IPv4.
func (f fabric) only(keep func(netip.Addr) bool) {
	for n := range f.Nodes {
		for i := range f.Nodes[n].Interfaces {
			face := &f.Nodes[n].Interfaces[i]
			face.Addresses = slices.DeleteFunc(face.Addresses, func(p netip.Prefix) bool { return !keep(p.Addr()) })
		}
		f.Nodes[n].Routes = slices.DeleteFunc(f.Nodes[n].Routes, func(r topology.Route) bool { return !keep(r.To.Addr()) })
	}
}

// Of two equally near ways each queue pair takes one and stays there, and several
// queue pairs take both.
func TestEqualCost(t *testing.T) {
	for family, keep := range map[string]func(netip.Addr) bool{"IPv4": netip.Addr.Is4, "IPv6": netip.Addr.Is6} {
		t.Run(family, func(t *testing.T) {
			const (
				messages = 20
				data     = messages * 16 // packets, of 4 KiB
				few      = 16            // the connection manager's, whose queue pair may be elsewhere
			)
			f := spines(uniqueName(t))
			f.only(keep)
			f.write("one", "a", "b", messages)
			l := start(t, f.Topology)
			var times [2]int // that a way was taken
			before := ways(t, l)
			runs := 0
			for ; runs < 12 || runs < 100 && min(times[0], times[1]) == 0; runs++ { // which it takes is chance
				if r := runLab(t, l); !r.Passed {
					t.Fatalf("%+v", r.Workloads)
				}
				now := ways(t, l)
				for back := range 2 {
					if by := [2]uint64{now[back][0] - before[back][0], now[back][1] - before[back][1]}; min(by[0], by[1]) > few {
						t.Errorf("a queue pair's packets went both ways: %v", by)
					}
				}
				for s := range 2 {
					if now[0][s]-before[0][s] >= data {
						times[s]++
					}
				}
				before = now
			}
			if times[0]+times[1] != runs || times[0] == 0 || times[1] == 0 {
				t.Errorf("ways were taken %v times, want both, and %d in all", times, runs)
			}
		})
	}
}

// Packets leave a way whose first link has lost its carrier, because it is down or
// because the router there is, and come back to one that is mended.
func TestFailOver(t *testing.T) {
	f := spines(uniqueName(t))
	for i := range 6 {
		f.Workloads = append(f.Workloads, topology.Workload{
			Name: fmt.Sprintf("w%d", i), From: "a", To: "b", Operation: topology.Write, Size: 4 << 10, Depth: 2, Duration: time.Second, Verify: true,
		})
	}
	f.Links[0].Directions[0].Delay = time.Millisecond // lest they take all processors
	l := start(t, f.Topology)
	// The workloads run again and again, for as long as it takes to look.
	enough, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for !isClosed(enough) {
			r, err := l.Run(testContext(t))
			if err != nil {
				t.Error(err)
				return
			}
			for _, w := range r.Workloads {
				if w.Errors > 0 || w.Messages == 0 || !w.Verified {
					t.Errorf("%+v", w)
				}
			}
		}
	}()
	defer func() {
		close(enough)
		<-ended
	}()
	// carry waits until those of the ways carry packets, and only those, but for what
	// leaves before the router's kernel has noticed that a carrier is gone.
	const few = 20
	carry := func(want [2]bool) {
		t.Helper()
		before := ways(t, l)
		eventually(t, testTime, func() string {
			now := ways(t, l)
			grown := [2]uint64{now[0][0] - before[0][0], now[0][1] - before[0][1]}
			for s := range 2 {
				if !want[s] && grown[s] > few {
					before = now
				}
				if want[s] && grown[s] < 100 || !want[s] && grown[s] > few {
					return fmt.Sprintf("packets that went over s1 and s2: %v", grown)
				}
			}
			return ""
		})
	}
	carry([2]bool{true, true})
	for _, endpoint := range []string{"r1:eth1", "r2:eth1"} {
		if err := l.Links.Down(testContext(t), endpoint); err != nil {
			t.Fatal(err)
		}
	}
	carry([2]bool{false, true})
	for _, endpoint := range []string{"r1:eth1", "r2:eth1"} {
		if err := l.Links.Up(testContext(t), endpoint); err != nil {
			t.Fatal(err)
		}
	}
	carry([2]bool{true, true})
	kill(t, processOf(t, f.Name, "ndklab-node "+f.Name+"/s2"))
	eventually(t, testTime, func() string {
		in, err := l.Inspect(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if in.Links[2].State != "down" || in.Links[4].State != "down" {
			return "links of s2 are not down"
		}
		return ""
	})
	carry([2]bool{true, false})
}

// Where a way is cut further on, the routes of all nodes go around it after the time that the file gives, and to
// a host that is gone there are none. The kernel is the judge, and ping where there is one.
func TestRoutesConverge(t *testing.T) {
	f := spines(uniqueName(t))
	f.Convergence = 50 * time.Millisecond
	l := start(t, f.Topology)
	_, err := exec.LookPath("ping")
	pings := err == nil
	ping := func(address string) string {
		r := runCommand(t, l, "a", node.Command{Args: []string{"sh", "-c", "ping -n -c 1 -W 20 " + strings.Trim(address, "[]") + "; true"}})
		var out bytes.Buffer
		if _, err := io.Copy(&out, r.stdout); err != nil {
			t.Fatal(err)
		}
		r.wait(t)
		return out.String()
	}
	addresses := []string{"10.6.0.1", "[fd00:6::1]"}
	answered := func() {
		t.Helper()
		for range 5 { // each is another flow
			for _, address := range addresses {
				if says := roundTrip(t, l, "a", "b", address); says == "lost" {
					t.Errorf("an echo from %s is lost", address)
				}
				if pings {
					if says := ping(address); !strings.Contains(says, " 0% packet loss") {
						t.Errorf("ping: %s", says)
					}
				}
			}
		}
	}
	converged := 0
	converge := func() (is event.Routes) {
		t.Helper()
		converged++
		eventually(t, testTime, func() string {
			all, _, err := l.Events(testContext(t), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			all = slices.DeleteFunc(all, func(e event.Event) bool { return e.Kind != event.RoutesConverged })
			if len(all) < converged {
				return fmt.Sprintf("routes have converged %d times, want %d", len(all), converged)
			}
			is = *all[converged-1].Routes
			return ""
		})
		return is
	}
	routes := func(family string) string { return ip(t, l, "r1", family, "route", "show", "proto", "static") }
	before := routes("-4") + routes("-6")
	// Only the link at the other end goes, which r1 does not see by itself.
	if err := l.Links.Down(testContext(t), "r2:eth1"); err != nil {
		t.Fatal(err)
	}
	if is := converge(); is.Changed == 0 || is.OutOfReach != 0 {
		t.Errorf("%+v", is)
	}
	answered()
	if got := routes("-4") + routes("-6"); got != "" && (strings.Contains(got, "eth1") || strings.Contains(got, "nexthop") || !strings.Contains(got, "10.6.0.0/24 via 10.3.0.2 dev eth2") || !strings.Contains(got, "fd00:6::/64 via fd00:3::2 dev eth2")) {
		t.Errorf("routes of r1: %s", got)
	}
	act(t, l, "b", StopNode, nodeDown)
	if is := converge(); is.OutOfReach != 1 {
		t.Errorf("%+v", is)
	}
	if got := routes("-4") + routes("-6"); strings.Contains(got, "10.6.0.0") || strings.Contains(got, "fd00:6:") {
		t.Errorf("routes of r1: %s", got)
	}
	for _, address := range addresses {
		if !pings {
			break
		}
		if says := ping(address); !strings.Contains(says, "nreachable") {
			t.Errorf("ping of a host that is gone: %s", says)
		}
	}
	act(t, l, "b", StartNode, nodeReady)
	converge()
	if err := l.Links.Up(testContext(t), "r2:eth1"); err != nil {
		t.Fatal(err)
	}
	converge()
	answered()
	if got := routes("-4") + routes("-6"); got != before {
		t.Errorf("routes of r1: %s, before %s", got, before)
	}
}
