package workload

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/topology"
)

// TestReconnect has links fail for so long that connections do, again and again: in the
// end every message has arrived, right, and none counts twice.
func TestReconnect(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		spec := Spec{
			Operation: rapid.SampledFrom([]topology.Operation{topology.Send, topology.Write, topology.Read}).Draw(r, "operation"),
			Measure:   rapid.SampledFrom([]topology.Measure{topology.Bandwidth, topology.Latency}).Draw(r, "measure"),
			Size:      rapid.SampledFrom([]uint64{10, 10000}).Draw(r, "size"), Depth: rapid.IntRange(1, 16).Draw(r, "depth"),
			QPs: rapid.IntRange(1, 4).Draw(r, "QPs"), SRQ: rapid.Bool().Draw(r, "SRQ"), Polling: rapid.Bool().Draw(r, "polling"),
			Verify: true, Reconnect: true, Seed: rapid.Uint64().Draw(r, "seed"),
		}
		slow := 8 * 200 * spec.Size // 200 messages each second
		if rapid.Bool().Draw(r, "counted") {
			spec.Count = rapid.Uint64Range(1, 1000).Draw(r, "count")
			spec.Rate = rapid.SampledFrom([]uint64{0, slow}).Draw(r, "rate")
		} else {
			spec.Duration = time.Duration(rapid.Int64Range(0, int64(30*time.Second)).Draw(r, "duration"))
			spec.Rate = slow // or there are too many for a test
		}
		cuts := rapid.IntRange(1, 3).Draw(r, "cuts")
		l := newLab(t)
		got, found := l.run(spec, func(*target) {
			for range cuts {
				l.clock.Run(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(r, "up")))
				l.path.Down = true
				l.clock.Run(time.Duration(rapid.Int64Range(0, int64(12*time.Second)).Draw(r, "down")))
				l.path.Down = false
			}
		})
		if got.Errors != 0 || got.Error != "" || found.Error != "" || got.Completed != got.Messages || spec.Count > 0 && got.Messages != spec.Count {
			r.Errorf("client %+v, server %+v", got, found)
		}
		if got.Connections != uint64(spec.QPs)+got.Reconnects {
			r.Errorf("%d connections, %d of them made again", got.Connections, got.Reconnects)
		}
		if !spec.Conclude(&got, found) {
			r.Errorf("not verified: client %+v, server %+v", got, found)
		}
	})
}

// TestReconnectToAnother has the server's end vanish in the middle, and another take its
// place.
func TestReconnectToAnother(t *testing.T) {
	spec := Spec{Operation: topology.Write, Size: 1000, Depth: 8, QPs: 2, Duration: 20 * time.Second, Rate: 8e6, Verify: true, Reconnect: true, Seed: 3}
	l := newLab(t)
	got, found := l.run(spec, func(first *target) {
		l.clock.Run(5 * time.Second)
		stopped := false
		first.Stop(func(found ServerResult) { stopped = true })
		l.clock.Run(3 * time.Second)
		if !stopped {
			t.Fatal("the first server does not end")
		}
		// It had a listener at the same place; its result is what l.run asks for.
		again, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress)
		if err != nil {
			t.Fatal(err)
		}
		l.clock.Run(30 * time.Second)
		again.Stop(func(found ServerResult) {
			if found.Error != "" || found.Verified < 10000 {
				t.Errorf("the second server: %+v", found)
			}
		})
	})
	if got.Errors != 0 || got.Reconnects != 2 || got.Messages < 16000 || got.Recovered < 3 || got.Recovered > 4.5 || found.Error != "" {
		t.Errorf("client %+v, first server %+v", got, found)
	}
	if got.LatencyMax < 3*time.Second { // of what was in flight
		t.Errorf("the longest latency is %v", got.LatencyMax)
	}
	if got.Retried == 0 || got.Retried > 16 {
		t.Errorf("%d messages were posted again", got.Retried)
	}
}

// TestHalfHeard has one end not hear of what the other has done: it is done again, and does
// not count twice at either.
func TestHalfHeard(t *testing.T) {
	opcode := func(packet []byte) byte { return packet[20+8] } // behind the headers of IPv4 and UDP
	const sendOnly, acknowledge = 0x04, 0x11
	for name, test := range map[string]struct {
		operation topology.Operation
		lost      byte // opcode of packets of the server that do not arrive
	}{
		"acknowledgements of sends":          {topology.Send, acknowledge},
		"acknowledgements of writes":         {topology.Write, acknowledge},
		"the word of what has been compared": {topology.Write, sendOnly},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Operation: test.operation, Size: 100, Depth: 4, QPs: 2, Count: 2000, Verify: true, Reconnect: true, Seed: 3}
			l := newLab(t)
			got, found := l.run(spec, func(*target) {
				l.clock.Run(500 * time.Millisecond)
				l.drop = func(from netip.Addr, packet []byte) bool {
					return from == serverAddress.Addr() && packet[9] == 17 && opcode(packet) == test.lost
				}
				l.clock.Run(6 * time.Second)
				l.drop = nil
			})
			if got.Messages != 2000 || got.Completed != 2000 || got.Error != "" || got.Reconnects == 0 || got.Retried == 0 {
				t.Errorf("client %+v", got)
			}
			if found != (ServerResult{Verified: 2000}) {
				t.Errorf("server %+v", found)
			}
			var took Latencies
			if err := took.Add(got.Latency); err != nil || took.Count() != 2000 {
				t.Errorf("%d latencies, %v", took.Count(), err)
			}
		})
	}
}

// TestReconnectInVain has the network fail for good: the client gives up, whether it is to
// do a number of messages or has a time in which to.
func TestReconnectInVain(t *testing.T) {
	for name, test := range map[string]struct {
		limit func(*Spec)
		after time.Duration // from the cut
	}{
		"count":    {func(s *Spec) { s.Count = 1 << 40 }, patience},
		"duration": {func(s *Spec) { s.Duration = time.Minute }, time.Minute + patience - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Operation: topology.Send, Size: 1000, Depth: 8, Rate: 8e6, Verify: true, Reconnect: true}
			test.limit(&spec)
			l := newLab(t)
			got, found := l.run(spec, func(*target) {
				l.clock.Run(time.Second)
				l.path.Down = true
			})
			if late := l.ended - time.Second - test.after; late < 0 || late > 10*time.Second {
				t.Errorf("it has ended %v after %v", late, test.after)
			}
			if got.Errors != 8 || !strings.HasPrefix(got.Error, "no connection could be made for ") || !strings.HasSuffix(got.Error, "s: connect: no answer") || found.Error != "" {
				t.Errorf("client %+v, server %+v", got, found)
			}
			if got.Recovered < test.after.Seconds()-1 {
				t.Errorf("silent for %v s", got.Recovered)
			}
		})
	}
}

// TestReconnectFromTheStart has nobody listen at first.
func TestReconnectFromTheStart(t *testing.T) {
	spec := Spec{Name: "w", Operation: topology.Read, Size: 10, Depth: 1, Count: 3, Verify: true, Reconnect: true}
	l := newLab(t)
	var got *Result
	if _, err := runStream(l.devices[0], l.clock, nil, spec, clientAddress, serverAddress, func(r Result) { got = &r }); err != nil {
		t.Fatal(err)
	}
	l.clock.Run(2 * time.Second)
	if _, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress); err != nil {
		t.Fatal(err)
	}
	l.clock.Run(2 * time.Second)
	if got == nil || got.Error != "" || got.Messages != 3 || got.Reconnects != 0 || got.Connections != 1 {
		t.Errorf("%+v", got)
	}
}

// TestGiveUpEarly aborts and stops clients that are connecting again.
func TestGiveUpEarly(t *testing.T) {
	for name, end := range map[string]func(*Host){
		"abort": func(h *Host) { h.Abort("w", 0, "enough") },
		"stop":  func(h *Host) { h.Stop("w", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Name: "w", Operation: topology.Write, Size: 10, Depth: 2, Duration: time.Hour, Rate: 8e4, Verify: true, Reconnect: true}
			l := newLab(t)
			server, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress)
			if err != nil {
				t.Fatal(err)
			}
			h := NewHost(l.devices[0], l.clock)
			var got *Result
			if err := h.Run(spec, clientAddress, serverAddress, func(r Result) { got = &r }); err != nil {
				t.Fatal(err)
			}
			l.clock.Run(time.Second)
			l.path.Down = true
			l.clock.Run(10 * time.Second)
			end(h)
			l.clock.Run(time.Minute)
			if got == nil || got.Errors != 2 || got.Messages < 900 {
				t.Errorf("%+v", got)
			}
			server.Stop(func(ServerResult) {})
			l.clock.Run(time.Minute)
			for i, m := range l.devices {
				if usage := m.Usage(); usage.Instances != 0 {
					t.Errorf("device %d: %+v", i, usage)
				}
			}
		})
	}
}
