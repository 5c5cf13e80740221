package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// play runs a workload's flow from the first device to the second and ends its server.
// meanwhile is called when both are started. Nothing must be left open.
func (l *lab) play(spec Spec, meanwhile func(client, server *Host)) (Result, ServerResult) {
	l.t.Helper()
	from, to := NewHost(l.devices[0], l.clock), NewHost(l.devices[1], l.clock)
	if err := to.Serve(spec, serverAddress); err != nil {
		l.t.Fatal(err)
	}
	apart()
	var result *Result
	if err := from.Run(spec, clientAddress, serverAddress, func(r Result) { result = &r; l.ended = l.clock.Now() }); err != nil {
		l.t.Fatal(err)
	}
	if result != nil {
		l.t.Fatal("done from within Run")
	}
	if meanwhile != nil {
		meanwhile(from, to)
	}
	if !l.clock.RunUntil(func() bool { return result != nil }, 10*time.Minute) {
		l.t.Fatalf("the client does not end: %+v", from.Progress())
	}
	var found *ServerResult
	if err := to.Unserve(spec.Name, spec.Flow, func(r ServerResult) { found = &r }); err != nil {
		l.t.Fatal(err)
	}
	if !l.clock.RunUntil(func() bool { return found != nil }, time.Minute) {
		l.t.Fatal("the server does not end")
	}
	for i, m := range l.devices {
		if usage := m.Usage(); usage != (provider.Usage{}) {
			l.t.Errorf("device %d has %+v", i, usage)
		}
	}
	// Of what a failed test prints, these would be most.
	l.series, result.Series, result.Histogram = result.Series, nil, nil
	return *result, *found
}

func TestStorm(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		for _, pend := range []bool{false, true} {
			t.Run(fmt.Sprintf("loss %v pend %v", loss, pend), func(t *testing.T) {
				l := newLabWith(t, func(c *provider.Config) { c.Pend = pend })
				l.path.Loss = loss
				spec := Spec{Name: "w", Operation: topology.Connect, QPs: 40, Depth: 8, Count: 200}
				most := uint32(0)
				got, found := l.play(spec, func(*Host, *Host) {
					l.clock.RunUntil(func() bool {
						most = max(most, l.devices[0].Usage().Qps)
						return l.devices[0].Usage().Instances == 0
					}, time.Minute)
				})
				if got.Messages != 200 || got.Connections != 200 || got.Bytes != 0 || got.Errors != 0 || found.Error != "" {
					t.Errorf("client %+v, server %+v", got, found)
				}
				if most != 40 {
					t.Errorf("%d connections at once at most, want 40", most)
				}
				if c := l.devices[0].Counters(); c.Connect != 200 {
					t.Errorf("counters: %+v", c)
				}
			})
		}
	}
}

// The storm of the issue: all connections stand at once.
func TestStormOfThousands(t *testing.T) {
	l := newLab(t)
	got, _ := l.play(Spec{Name: "w", Operation: topology.Connect, QPs: 2000, Depth: 64, Count: 2000}, nil)
	if got.Messages != 2000 || got.Errors != 0 {
		t.Errorf("%+v", got)
	}
	// 64 at a time, each a round trip of 2 ms and a little, and time to make them.
	if got.Seconds > 0.2 {
		t.Errorf("it took %v s", got.Seconds)
	}
}

// TestStormLatency: a connection takes the round trip of REQ and REP and that of its
// message, whether others are made and ended meanwhile, and nothing of its own. As the storm
// looks for completions when connections end, too, no carrier must take it for one that
// polls.
func TestStormLatency(t *testing.T) {
	for _, depth := range []int{1, 3, 16} {
		for _, delay := range []time.Duration{10 * time.Microsecond, time.Millisecond, 300 * time.Millisecond} {
			l := newLabWith(t, func(c *provider.Config) { c.Carrier = newPoller(c) })
			l.path.Delay, l.path.Rate = delay, 0
			got, _ := l.play(Spec{Name: "w", Operation: topology.Connect, QPs: depth, Depth: depth, Count: 100}, nil)
			if want := 4 * delay; got.LatencyMin != want || got.LatencyMax != want || got.Connections != 100 {
				t.Errorf("depth %d, delay %v: %d connections of %v to %v, want 100 of %v",
					depth, delay, got.Connections, got.LatencyMin, got.LatencyMax, want)
			}
		}
	}
}

// For a duration, connections come and go.
func TestStormDuration(t *testing.T) {
	l := newLab(t)
	got, _ := l.play(Spec{Name: "w", Operation: topology.Connect, QPs: 4, Depth: 4, Duration: 240 * time.Millisecond}, nil)
	// Each is made in two round trips of 2 ms and ended in one.
	if got.Errors != 0 || got.Messages != 4*40 || got.Seconds < 0.235 || got.Seconds > 0.25 {
		t.Errorf("client %+v", got)
	}
}

func TestStormStop(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Connect, QPs: 40, Depth: 4, Duration: time.Minute}
	got, _ := l.play(spec, func(client, _ *Host) {
		l.clock.Run(100 * time.Millisecond)
		if p := client.Progress(); len(p) != 1 || p[0].Messages == 0 {
			t.Errorf("progress: %+v", p)
		}
		client.Stop("w", 0)
	})
	if got.Messages == 0 || got.Errors != 0 || l.ended > time.Second {
		t.Errorf("after %v: %+v", l.ended, got)
	}
}

// A storm ends with its first failure, whatever that is, and says what it was.
func TestStormFails(t *testing.T) {
	for _, test := range []struct {
		name           string
		change         func(l *lab, client *Host)
		within         time.Duration
		client, server string // errors
	}{
		{"abort", func(_ *lab, client *Host) { client.Abort("w", 0, "enough") }, time.Second, "enough", ""},
		{"client disabled", func(l *lab, _ *Host) { l.devices[0].SetState(false) }, time.Second, disabled, ""},
		{"server disabled", func(l *lab, _ *Host) { l.devices[1].SetState(false) }, time.Second, "the peer disconnected", disabled},
		{"server dead", func(l *lab, _ *Host) { l.path.Down = true }, 5 * time.Second, "STATUS_IO_TIMEOUT", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			spec := Spec{Name: "w", Operation: topology.Connect, QPs: 50, Depth: 8, Duration: time.Hour}
			got, found := l.play(spec, func(client, _ *Host) {
				l.clock.Run(time.Second)
				test.change(l, client)
			})
			if got.Messages == 0 || got.Errors != 1 || !strings.HasSuffix(got.Error, test.client) || found.Error != test.server {
				t.Errorf("client %+v, server %+v", got, found)
			}
			if l.ended > time.Second+test.within {
				t.Errorf("it ended after %v", l.ended)
			}
			if quiet := time.Duration(got.Recovered * float64(time.Second)); quiet > l.ended-time.Second+10*time.Millisecond {
				t.Errorf("nothing completed for %v", quiet)
			}
		})
	}
}

func TestStormIsRefused(t *testing.T) {
	l := newLab(t)
	var got *Result
	client := NewHost(l.devices[0], l.clock)
	if err := client.Run(Spec{Name: "w", Operation: topology.Connect, QPs: 5, Depth: 2, Count: 10}, clientAddress, serverAddress,
		func(r Result) { got = &r }); err != nil {
		t.Fatal(err)
	}
	if !l.clock.RunUntil(func() bool { return got != nil }, time.Minute) || got.Error != "connection 0: connect: STATUS_CONNECTION_REFUSED" {
		t.Errorf("%+v", got)
	}
}

// A storm that needs all of the adapter's queue pairs has them again and again.
func TestStormOfAllQPs(t *testing.T) {
	l := newLabWith(t, func(c *provider.Config) { c.Capabilities.MaxQpCount, c.Pend = 10, true })
	l.path.Loss = 0.05
	got, found := l.play(Spec{Name: "w", Operation: topology.Connect, QPs: 10, Depth: 10, Count: 500}, nil)
	if got.Connections != 500 || got.Errors != 0 || found.Error != "" {
		t.Errorf("client %+v, server %+v", got, found)
	}
}

// When another consumer has the queue pairs, the server says so.
func TestStormLacksQPs(t *testing.T) {
	l := newLabWith(t, func(c *provider.Config) { c.Capabilities.MaxQpCount = 10 })
	got, found := l.play(Spec{Name: "w", Operation: topology.Connect, QPs: 10, Depth: 1, Count: 10}, func(*Host, *Host) {
		release := l.occupy(1, 5)
		l.clock.Run(time.Second)
		release()
		l.clock.Run(time.Second)
	})
	const want = "create QP: STATUS_INSUFFICIENT_RESOURCES: the adapter has a MaxQpCount of 10, in use are 10"
	if got.Connections != 5 || got.Error != "connection 5: connect: STATUS_CONNECTION_REFUSED" || found.Error != want {
		t.Errorf("client %+v, server %+v", got, found)
	}
}

// A request that comes while a queue pair is being closed waits for it, or for the end of
// the server.
func TestStormWaitsForQP(t *testing.T) {
	for _, stays := range []bool{true, false} {
		l := newLabWith(t, func(c *provider.Config) { c.Capabilities.MaxQpCount = 2 })
		spec := Spec{Name: "w", Operation: topology.Connect, QPs: 2, Depth: 1, Count: 2}
		got, found := l.play(spec, func(_, server *Host) {
			s := server.servers[end{"w", 0}].(*stormServer)
			release := l.occupy(1, 1)
			s.closing++ // as if it were ours
			l.clock.Run(time.Second)
			if len(s.waiting) != 1 {
				t.Fatalf("%d requests wait", len(s.waiting))
			}
			release()
			l.clock.Run(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.closing--
			if stays {
				s.gone(nil)
				return
			}
			s.mu.Unlock()
			s.Stop(func(ServerResult) {})
			s.mu.Lock()
		})
		if found.Error != "" || stays && (got.Connections != 2 || got.Errors != 0) || !stays && (got.Connections != 1 || got.Errors != 1) {
			t.Errorf("it stays: %v: client %+v, server %+v", stays, got, found)
		}
	}
}

// occupy has another consumer of a device make queue pairs, until it is told to close
// them.
func (l *lab) occupy(device, qps int) (release func()) {
	l.t.Helper()
	a, _ := l.devices[device].OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	pd, _ := a.CreatePD(nil, nil)
	cq, _ := a.CreateCQ(1, nil, nil, nil, nil, nil)
	objects := []closer{pd, cq}
	for range qps {
		qp, status := pd.CreateQP(cq, cq, nil, 1, 1, 1, 1, 0, nil, nil)
		if status != provider.StatusSuccess {
			l.t.Fatal(status)
		}
		objects = append(objects, qp)
	}
	return func() { closeAll(objects, &instance{a, func() {}}, func() {}) }
}

// An adapter that is too small is refused before anything is sent, with its limit's name.
func TestStormLimits(t *testing.T) {
	for _, test := range []struct {
		want   string
		narrow func(*provider.Config)
	}{
		{"a MaxQpCount of 50, the adapter has 49", func(c *provider.Config) { c.Capabilities.MaxQpCount = 49 }},
		{"a MaxCqDepth of 150, the adapter has 149", func(c *provider.Config) { c.Info.MaxCqDepth = 149 }},
		{"a MaxRegistrationSize of 800, the adapter has 799", func(c *provider.Config) { c.Info.MaxRegistrationSize = 799 }},
	} {
		spec := Spec{Name: "w", Operation: topology.Connect, QPs: 50, Depth: 8, Count: 100}
		l := newLabWith(t, test.narrow)
		l.refused(spec, test.want)
	}
}

// refused checks that a workload's client is not started, and why, and that nothing is
// left of it.
func (l *lab) refused(spec Spec, want string) {
	l.t.Helper()
	err := NewHost(l.devices[0], l.clock).Run(spec, clientAddress, serverAddress, func(Result) { l.t.Error("done") })
	if err == nil || !strings.HasSuffix(err.Error(), "it needs "+want) {
		l.t.Errorf("%v, want %s", err, want)
	}
	l.clock.Run(time.Second)
	if usage := l.devices[0].Usage(); usage != (provider.Usage{}) {
		l.t.Errorf("%s: left open: %+v", want, usage)
	}
}

// A connection that carries something else than it should is not made.
func TestStormCompares(t *testing.T) {
	l := newLab(t)
	got, _ := l.play(Spec{Name: "w", Operation: topology.Connect, QPs: 5, Depth: 1, Count: 50}, func(client, _ *Host) {
		w := client.clients[end{"w", 0}].(*storm)
		l.clock.RunUntil(func() bool { return w.number == 8 }, time.Second)
		l.clock.Run(2500 * time.Microsecond) // the number is on its way
		w.conns.last.session.(*attempt).number = 99
	})
	if got.Messages != 7 || got.Errors != 1 || got.Error != "connection 99: it was answered as 7" {
		t.Errorf("%+v", got)
	}
}
