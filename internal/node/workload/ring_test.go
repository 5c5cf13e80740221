package workload

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A circle is the hosts of an AllReduce on a simulated network.
type circle struct {
	t       *testing.T
	clock   *clock.Virtual
	path    *sim.Impaired
	devices []*provider.Miniport
	hosts   []*Host
	spec    Spec
	ended   []time.Duration // when each rank did
	late    int             // the flow that is served only when all ranks have begun; 0: none
	cut     int             // the rank that no packet comes from or goes to; 0: all are well
	// slow is a rank whose packets leave at 100 Mb/s, the next of them at free; 0: none.
	slow int
	free time.Duration
	// atOnce: each server is ended when its client has, whatever the others do.
	atOnce bool
}

// Carry implements sim.Path.
func (c *circle) Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration {
	if dead := c.address(c.cut); c.cut != 0 && (from == dead || to == dead) {
		return nil
	}
	delays := c.path.Carry(now, from, to, packet)
	if c.slow != 0 && from == c.address(c.slow) {
		c.free = max(now, c.free) + time.Duration(len(packet))*8*10*time.Nanosecond
		for i := range delays {
			delays[i] += c.free - now
		}
	}
	return delays
}

func newCircle(t *testing.T, spec Spec, set func(rank int, c *provider.Config)) *circle {
	t.Helper()
	c := &circle{t: t, clock: clock.NewVirtual(), spec: spec, ended: make([]time.Duration, spec.Ranks)}
	c.path = &sim.Impaired{Rand: rand.New(rand.NewPCG(3, 4)), Delay: time.Millisecond, Rate: 10e9}
	network := sim.NewNetwork(c.clock, c)
	for i := range spec.Ranks {
		cfg := provider.Config{
			Carrier: network.Attach(4200, c.address(i)), Clock: c.clock,
			Rand: rand.New(rand.NewPCG(uint64(i), 9)), Info: provider.DefaultAdapterInfo(),
			Capabilities: provider.DefaultCapabilities(),
		}
		if set != nil {
			set(i, &cfg)
		}
		m, err := provider.NewMiniport(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.devices = append(c.devices, m)
		c.hosts = append(c.hosts, NewHost(m, c.clock))
	}
	return c
}

func (c *circle) address(rank int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(rank + 1)})
}

// of is the spec of a flow, which is that of a rank's client.
func (c *circle) of(flow int) Spec {
	s := c.spec
	s.Name, s.Operation, s.Flow, s.Rank, s.Verify = "sum", topology.AllReduce, flow, flow, true
	return s
}

// play runs the workload to its end on all hosts; nothing must be left open. meanwhile is
// called when all ranks have begun.
func (c *circle) play(meanwhile func()) []Result {
	c.t.Helper()
	n := c.spec.Ranks
	serve := func(flow int) {
		to := (flow + 1) % n
		if err := c.hosts[to].Serve(c.of(flow), netip.AddrPortFrom(c.address(to), 7000)); err != nil {
			c.t.Fatal(err)
		}
	}
	for flow := range n {
		if c.late == 0 || flow != c.late {
			serve(flow)
		}
	}
	results := make([]Result, n)
	left, served := n, n
	unserve := func(flow int) {
		if err := c.hosts[(flow+1)%n].Unserve("sum", flow, func(found ServerResult) {
			spec := c.of(flow)
			if verified := spec.Conclude(&results[flow], found); verified != (results[flow].Errors == 0) {
				c.t.Errorf("rank %d: verified: %v", flow, verified)
			}
			served--
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	for flow := range n {
		to := netip.AddrPortFrom(c.address((flow+1)%n), 7000)
		if err := c.hosts[flow].Run(c.of(flow), c.address(flow), to, func(r Result) {
			r.Series, r.Histogram = nil, nil
			results[flow], c.ended[flow] = r, c.clock.Now()
			left--
			if c.atOnce {
				unserve(flow)
			}
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	if c.late != 0 {
		serve(c.late)
	}
	if meanwhile != nil {
		meanwhile()
	}
	if !c.clock.RunUntil(func() bool { return left == 0 }, 10*time.Minute) {
		c.t.Fatalf("%d ranks do not end", left)
	}
	for flow := range n {
		if !c.atOnce {
			unserve(flow)
		}
	}
	if !c.clock.RunUntil(func() bool { return served == 0 }, time.Minute) {
		c.t.Fatalf("%d servers do not end", served)
	}
	for i, m := range c.devices {
		if usage := m.Usage(); usage != (provider.Usage{}) {
			c.t.Errorf("device %d has %+v", i, usage)
		}
	}
	return results
}

func TestAllReduce(t *testing.T) {
	for _, ranks := range []int{2, 3, 8} {
		for _, size := range []uint64{0, 1, 8 * 7, 4096, 1 << 20} {
			for _, loss := range []float64{0, 0.02} {
				t.Run(fmt.Sprintf("%d ranks size %d loss %v", ranks, size, loss), func(t *testing.T) {
					c := newCircle(t, Spec{Ranks: ranks, Size: size, Count: 5, Seed: 3}, func(i int, c *provider.Config) { c.Pend = i%2 == 1 })
					c.path.Loss = loss
					var bytes uint64
					for rank, got := range c.play(nil) {
						if got.Messages != 5 || got.Errors != 0 || got.Error != "" {
							t.Errorf("rank %d: %+v", rank, got)
						}
						bytes += got.Bytes
					}
					// Each of the ranks-1 sums of a part travels to ranks-1, and so do what they
					// are made of.
					if want := 5 * 2 * uint64(ranks-1) * ((size + 7) / 8 * 8); bytes != want {
						t.Errorf("%d bytes were sent, want %d", bytes, want)
					}
				})
			}
		}
	}
}

// A rank whose way to the next one is slow takes what it has got when the rank before is
// done, although its server is to end by then.
func TestAllReduceEndsOneByOne(t *testing.T) {
	for slow := 1; slow < 4; slow++ {
		c := newCircle(t, Spec{Ranks: 8, Size: 1 << 20, Count: 3, Seed: 3}, nil)
		c.slow, c.atOnce = slow, true
		for rank, got := range c.play(nil) {
			if got.Messages != 3 || got.Errors != 0 {
				t.Errorf("rank %d: %+v", rank, got)
			}
		}
	}
}

// A wrong number is found by each rank that it has come to.
func TestAllReduceChecks(t *testing.T) {
	c := newCircle(t, Spec{Ranks: 4, Size: 4096, Count: 3, Seed: 3}, nil)
	results := c.play(func() {
		w := c.hosts[2].clients[end{"sum", 2}].(*rank)
		if !c.clock.RunUntil(func() bool { return w.round == 1 && w.out > 0 }, time.Second) {
			t.Fatal("no second round")
		}
		w.vector[w.sum.words-1]++ // which is not sent as yet
	})
	for i, got := range results {
		if got.Messages != 2 || got.Errors != 1 || !strings.HasPrefix(got.Error, "round 1: number 511 of 512 is 0x") {
			t.Errorf("rank %d: %+v", i, got)
		}
	}
}

// All ranks end with the round that rank 0 calls the last one, whoever wants to stop.
func TestAllReduceEnds(t *testing.T) {
	for _, stopped := range []int{-1, 0, 2} {
		t.Run(fmt.Sprint(stopped), func(t *testing.T) {
			c := newCircle(t, Spec{Ranks: 4, Size: 4096, Duration: time.Second}, nil)
			results := c.play(func() {
				if stopped >= 0 {
					c.clock.Run(200 * time.Millisecond)
					c.hosts[stopped].Stop("sum", stopped)
				}
			})
			within := 1020 * time.Millisecond
			if stopped >= 0 {
				within = 220 * time.Millisecond
			}
			for i, got := range results {
				if got.Errors != 0 || got.Messages == 0 || got.Messages != results[0].Messages || c.ended[i] > within {
					t.Errorf("rank %d after %v: %+v, rank 0: %+v", i, c.ended[i], got, results[0])
				}
			}
		})
	}
}

// A rank that fails takes all others with it, whatever is the matter.
func TestAllReduceFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(c *circle)
		within time.Duration
		want   [4]string // of the ranks' errors; "" is one of a neighbour's end
	}{
		{"abort", func(c *circle) { c.hosts[1].Abort("sum", 1, "enough") }, time.Second, [4]string{1: "enough"}},
		{"disabled", func(c *circle) { c.devices[1].SetState(false) }, time.Second, [4]string{1: disabled}},
		{"dead", func(c *circle) { c.cut = 1 }, 10 * time.Second, [4]string{0: "the next rank: STATUS_IO_TIMEOUT", 1: "the next rank: STATUS_IO_TIMEOUT"}},
		{"not served", func(c *circle) {
			if err := c.hosts[1].Unserve("sum", 0, func(ServerResult) {}); err != nil {
				c.t.Fatal(err)
			}
			c.clock.Run(100 * time.Millisecond)
			if err := c.hosts[1].Serve(c.of(0), netip.AddrPortFrom(c.address(1), 7000)); err != nil {
				c.t.Fatal(err)
			}
		}, time.Second, [4]string{1: "its server was ended"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCircle(t, Spec{Ranks: 4, Size: 4096, Duration: time.Hour}, nil)
			results := c.play(func() {
				c.clock.Run(time.Second)
				test.change(c)
			})
			for i, got := range results {
				want := test.want[i]
				if want == "" {
					want = "the peer disconnected"
				}
				if got.Messages == 0 || got.Errors != 1 || !strings.HasSuffix(got.Error, want) && !strings.Contains(got.Error, want+"; at the server") {
					t.Errorf("rank %d: %+v, want %q", i, got, want)
				}
				if c.ended[i] > time.Second+test.within {
					t.Errorf("rank %d ended after %v", i, c.ended[i])
				}
			}
		})
	}
}

// Two ranks that wait for each other, with nothing on its way, find out that the link is
// gone.
func TestAllReduceOfTwoFails(t *testing.T) {
	c := newCircle(t, Spec{Ranks: 2, Size: 4096, Duration: time.Hour}, nil)
	results := c.play(func() {
		c.clock.Run(time.Second)
		c.hosts[1].servers[end{"sum", 0}].(*inbox).from = nil // rank 1 gets nothing
		c.clock.Run(time.Second)
		for i, h := range c.hosts {
			if w := h.clients[end{"sum", i}].(*rank); w.posted != w.delivered {
				t.Errorf("rank %d has sent %d messages, of which %d are delivered", i, w.posted, w.delivered)
			}
		}
		c.cut = 1
	})
	for i, got := range results {
		if got.Errors != 1 || got.Error != "the next rank: no answer from the peer has arrived: STATUS_IO_TIMEOUT" || c.ended[i] > 8*time.Second {
			t.Errorf("rank %d after %v: %+v", i, c.ended[i], got)
		}
	}
}

// A rank that cannot start lets the others know.
func TestAllReduceLimits(t *testing.T) {
	for _, test := range []struct {
		want   string
		narrow func(*provider.Config)
	}{
		{"a MaxTransferLength of 528, the adapter has 527", func(c *provider.Config) { c.Info.MaxTransferLength = 527 }},
		{"a MaxRegistrationSize of 2112, the adapter has 2111", func(c *provider.Config) { c.Info.MaxRegistrationSize = 2111 }},
		{"a MaxInitiatorQueueDepth of 5, the adapter has 4", func(c *provider.Config) { c.Info.MaxInitiatorQueueDepth = 4 }},
		{"a MaxReceiveQueueDepth of 2, the adapter has 1", func(c *provider.Config) { c.Info.MaxReceiveQueueDepth = 1 }},
	} {
		c := newCircle(t, Spec{Ranks: 2, Size: 1024, Count: 1}, func(i int, c *provider.Config) {
			if i == 0 {
				test.narrow(c)
			}
		})
		err := c.hosts[0].Serve(c.of(1), netip.AddrPortFrom(c.address(0), 7000))
		if err == nil {
			err = c.hosts[0].Run(c.of(0), c.address(0), netip.AddrPortFrom(c.address(1), 7000), func(Result) { t.Error("done") })
			var got *Result
			if err := c.hosts[1].Serve(c.of(0), netip.AddrPortFrom(c.address(1), 7000)); err != nil {
				t.Fatal(err)
			}
			if err := c.hosts[1].Run(c.of(1), c.address(1), netip.AddrPortFrom(c.address(0), 7000), func(r Result) { got = &r }); err != nil {
				t.Fatal(err)
			}
			if !c.clock.RunUntil(func() bool { return got != nil }, time.Second) || got.Error != "the next rank: connect: STATUS_CONNECTION_REFUSED" {
				t.Errorf("rank 1: %+v", got)
			}
		}
		if err == nil || !strings.HasSuffix(err.Error(), "it needs "+test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

// Servers may come after the clients of their hosts.
func TestAllReduceServedLate(t *testing.T) {
	c := newCircle(t, Spec{Ranks: 3, Size: 1024, Count: 2}, nil)
	c.late = 2
	for i, got := range c.play(nil) {
		if got.Messages != 2 || got.Errors != 0 {
			t.Errorf("rank %d: %+v", i, got)
		}
	}
}

// A rank that never hears of the rank before does not wait without end, nor do others.
func TestAllReduceIncomplete(t *testing.T) {
	c := newCircle(t, Spec{Ranks: 3, Size: 1024, Count: 2}, nil)
	var results [2]Result
	for flow := range 3 {
		to := (flow + 1) % 3
		if err := c.hosts[to].Serve(c.of(flow), netip.AddrPortFrom(c.address(to), 7000)); err != nil {
			t.Fatal(err)
		}
	}
	for flow := range 2 { // rank 2 does not run
		if err := c.hosts[flow].Run(c.of(flow), c.address(flow), netip.AddrPortFrom(c.address(flow+1), 7000), func(r Result) { results[flow] = r }); err != nil {
			t.Fatal(err)
		}
	}
	c.clock.Run(31 * time.Second)
	for i, want := range []string{"the rank before has not connected for 30s", "the next rank: the peer disconnected"} {
		if got := results[i]; got.Errors != 1 || got.Error != want && got.Error != "the rank before: the peer disconnected" {
			t.Errorf("rank %d: %+v", i, got)
		}
	}
}
