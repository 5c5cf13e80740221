package workload

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

func TestStorage(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		for _, size := range []uint64{0, 1, 4096, 65536} {
			for _, pend := range []bool{false, true} {
				t.Run(fmt.Sprintf("loss %v size %d pend %v", loss, size, pend), func(t *testing.T) {
					l := newLabWith(t, func(c *provider.Config) { c.Pend = pend })
					l.path.Loss = loss
					spec := Spec{Name: "w", Operation: topology.Storage, Size: size, Depth: 8, QPs: 3, Count: 200, Verify: true, Seed: 5}
					got, found := l.play(spec, nil)
					if got.Messages != 200 || got.Bytes != 200*size || got.Errors != 0 || got.Connections != 3 || found.Error != "" {
						t.Errorf("client %+v, server %+v", got, found)
					}
					if !spec.Conclude(&got, found) {
						t.Errorf("not verified: %+v", got)
					}
				})
			}
		}
	}
}

// Memory is lent as the adapter can: by registrations and windows in turn, or by what of
// these is long enough.
func TestStorageLends(t *testing.T) {
	for _, test := range []struct {
		name              string
		size              uint64
		change            func(*provider.Config)
		windows, register bool
	}{
		{"both", 65536, func(*provider.Config) {}, true, true},
		{"no windows", 65536, func(c *provider.Config) { c.Capabilities.MaxMwCount = 0 }, false, true},
		{"short windows", 65536, func(c *provider.Config) { c.Info.MaxWindowSize = 65535 }, false, true},
		{"few pages", 65537, func(*provider.Config) {}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLabWith(t, test.change)
			spec := Spec{Name: "w", Operation: topology.Storage, Size: test.size, Depth: 2, Count: 100, Verify: true}
			kinds := map[kind]int{}
			got, _ := l.play(spec, func(client, _ *Host) {
				w := client.clients[end{"w", 0}].(*storageClient)
				l.clock.RunUntil(func() bool {
					for i := range w.channels {
						if a := lenderOf(&w.channels[i]); a != nil {
							for _, loan := range a.loans {
								if loan.busy {
									kinds[loan.request.kind]++
								}
							}
						}
					}
					return w.over
				}, time.Minute)
			})
			if got.Messages != 100 || got.Errors != 0 {
				t.Errorf("%+v", got)
			}
			for k := kind(0); k < 8; k++ {
				want := test.windows
				if k&windows == 0 {
					want = test.register
				}
				if (kinds[k] > 0) != want {
					t.Errorf("kind %b was used %d times, want it used: %v", k, kinds[k], want)
				}
			}
		})
	}
}

// A mix has the sizes that both ends draw.
func TestStorageMix(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 9000, Sizes: []uint64{0, 512, 9000}, Mixed: true, Depth: 4, Count: 300, Verify: true, Seed: 3}
	got, found := l.play(spec, nil)
	want := uint64(0)
	for i := range uint64(300) {
		want += spec.drawn(i)
	}
	if got.Messages != 300 || got.Bytes != want || !spec.Conclude(&got, found) {
		t.Errorf("client %+v, server %+v, want %d bytes", got, found, want)
	}
}

func TestStorageDuration(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 512, Depth: 8, Duration: time.Second}
	got, _ := l.play(spec, func(client, _ *Host) {
		l.clock.Run(500 * time.Millisecond)
		if p := client.Progress(); len(p) != 1 || p[0].Messages < 500 || p[0].Bytes != 512*p[0].Messages {
			t.Errorf("progress: %+v", p)
		}
	})
	// A request that writes takes two round trips of 2 ms, one that reads takes one.
	if got.Errors != 0 || got.Messages < 1500 || got.Messages > 4000 || got.Seconds < 0.99 || got.Seconds > 1.01 || len(l.series) != 11 {
		t.Errorf("%+v", got)
	}
	if got.LatencyMin < 2*time.Millisecond || got.LatencyMax > 12*time.Millisecond {
		t.Errorf("latencies from %v to %v", got.LatencyMin, got.LatencyMax)
	}
}

func TestStorageStop(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 512, Depth: 8, Duration: time.Hour, Verify: true}
	got, found := l.play(spec, func(client, _ *Host) {
		l.clock.Run(100 * time.Millisecond)
		client.Stop("w", 0)
	})
	if got.Messages == 0 || l.ended > 200*time.Millisecond || !spec.Conclude(&got, found) {
		t.Errorf("after %v: client %+v, server %+v", l.ended, got, found)
	}
	l = newLab(t)
	l.path.Down = true
	got, _ = l.play(spec, func(client, _ *Host) {
		l.clock.Run(100 * time.Millisecond)
		client.Stop("w", 0)
	})
	if got.Messages != 0 || got.Errors != 0 || l.ended > 200*time.Millisecond {
		t.Errorf("before it was connected: after %v: %+v", l.ended, got)
	}
}

// A wrong byte at either end is found, in one message.
func TestStorageVerifies(t *testing.T) {
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 4096, Depth: 4, Count: 50, Verify: true, Seed: 1}
	for number, want := range map[uint64]string{
		6: "message 6 was wrong at the server; at the server: message 6: byte 100 is ",
		7: "message 7: byte 100 is ",
	} {
		l := newLab(t)
		got, found := l.play(spec, func(_, server *Host) {
			// One byte of what the server expects, or sends, is not what the client thinks.
			s := server.servers[end{"w", 0}].(*storageServer)
			s.pattern.bytes[s.pattern.offset(number)+100] ^= 1
		})
		wrong := got
		if verified := spec.Conclude(&wrong, found); verified || !strings.HasPrefix(wrong.Error, want) || got.Errors+got.Messages != 50 || got.Errors < 1 || got.Errors > 2 {
			t.Errorf("message %d: client %+v, server %+v", number, got, found)
		}
	}
}

// Credits grow to Depth, and a request that comes without one is found out.
func TestStorageCredits(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 64, Depth: 8, Duration: 2 * time.Second}
	got, found := l.play(spec, func(client, server *Host) {
		w := client.clients[end{"w", 0}].(*storageClient)
		if !l.clock.RunUntil(func() bool { return w.started }, time.Second) {
			t.Fatal("not connected")
		}
		b := lenderOf(&w.channels[0])
		if busy := len(b.unanswered()); busy != 1 || b.credits != 0 {
			t.Errorf("%d requests, %d credits to begin with", busy, b.credits)
		}
		l.clock.Run(200 * time.Millisecond)
		if busy := len(b.unanswered()); busy != 8 {
			t.Errorf("%d requests under way in the end, want 8", busy)
		}
		k := server.servers[end{"w", 0}].(*storageServer).current[0]
		k.server.mu.Lock()
		defer k.server.mu.Unlock()
		k.granted = 0
		k.hear(0, loanRequestLen)
	})
	if !strings.Contains(found.Error, " came without a credit") || got.Error != "the peer disconnected" || got.Errors != 8 {
		t.Errorf("client %+v, server %+v", got, found)
	}
}

// An answer that does not end the token that it is to end is a failure.
func TestStorageInvalidation(t *testing.T) {
	l := newLab(t)
	got, _ := l.play(Spec{Name: "w", Operation: topology.Storage, Size: 64, Depth: 1, Count: 100}, func(client, _ *Host) {
		w := client.clients[end{"w", 0}].(*storageClient)
		l.clock.RunUntil(func() bool { return w.next == 9 }, time.Second) // request 8 is under way
		lenderOf(&w.channels[0]).loans[0].request.token++
	})
	if got.Messages != 8 || got.Errors != 1 || !strings.HasPrefix(got.Error, "request 8: the answer has not ended just its token 0x") {
		t.Errorf("%+v", got)
	}
}

// A failure ends a workload at both ends, which close what they have and say why.
func TestStorageFails(t *testing.T) {
	for _, test := range []struct {
		name           string
		change         func(l *lab, client *Host)
		within         time.Duration
		client, server string // errors
	}{
		{"abort", func(_ *lab, client *Host) { client.Abort("w", 0, "enough") }, time.Second, "enough", ""},
		{"client disabled", func(l *lab, _ *Host) { l.devices[0].SetState(false) }, time.Second, disabled, ""},
		{"server disabled", func(l *lab, _ *Host) { l.devices[1].SetState(false) }, time.Second, "the peer disconnected", disabled},
		{"server dead", func(l *lab, _ *Host) { l.path.Down = true }, 5 * time.Second, "STATUS_IO_TIMEOUT", "STATUS_IO_TIMEOUT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			spec := Spec{Name: "w", Operation: topology.Storage, Size: 4096, Depth: 8, QPs: 2, Duration: time.Hour, Verify: true}
			got, found := l.play(spec, func(client, _ *Host) {
				l.clock.Run(time.Second)
				test.change(l, client)
				l.clock.Run(30 * time.Second)
			})
			if got.Messages == 0 || got.Errors != 16 || !strings.HasSuffix(got.Error, test.client) || !strings.HasSuffix(found.Error, test.server) {
				t.Errorf("client %+v, server %+v", got, found)
			}
			if l.ended > time.Second+test.within {
				t.Errorf("it ended after %v", l.ended)
			}
		})
	}
}

// With Reconnect requests weather an outage, and nothing is lost or wrong.
func TestStorageReconnects(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		l := newLab(t)
		l.path.Loss = loss
		spec := Spec{Name: "w", Operation: topology.Storage, Size: 10000, Depth: 8, QPs: 2, Count: 3000, Verify: true, Reconnect: true}
		got, found := l.play(spec, func(*Host, *Host) {
			for range 3 {
				l.clock.Run(200 * time.Millisecond)
				l.path.Down = true
				l.clock.Run(10 * time.Second)
				l.path.Down = false
			}
		})
		if got.Messages != 3000 || got.Reconnects != 6 || got.Connections != 8 || got.Retried == 0 || got.Recovered < 10 || got.Recovered > 15 {
			t.Errorf("loss %v: %+v", loss, got)
		}
		if !spec.Conclude(&got, found) {
			t.Errorf("loss %v: %+v, server %+v", loss, got, found)
		}
	}
}

// A server that is started again has its clients back.
func TestStorageServerRestarts(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 10000, Depth: 8, Count: 2000, Reconnect: true}
	got, _ := l.play(spec, func(_, server *Host) {
		l.clock.Run(200 * time.Millisecond)
		if err := server.Unserve("w", 0, func(ServerResult) {}); err != nil {
			t.Fatal(err)
		}
		l.clock.Run(3 * time.Second)
		if err := server.Serve(spec, serverAddress); err != nil {
			t.Fatal(err)
		}
	})
	if got.Messages != 2000 || got.Errors != 0 || got.Reconnects != 1 || got.Recovered < 3 || got.Recovered > 3.2 {
		t.Errorf("%+v", got)
	}
}

// A server that does not come back is not waited for without end.
func TestStorageIsNotPatientForEver(t *testing.T) {
	l := newLab(t)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 10000, Depth: 8, Count: 2000, Reconnect: true}
	got, _ := l.play(spec, func(*Host, *Host) {
		l.clock.Run(200 * time.Millisecond)
		l.path.Down = true
	})
	if got.Errors != 8 || got.Error != "no connection could be made for 30s: connect: no answer" && got.Error != "no connection could be made for 32s: connect: no answer" {
		t.Errorf("%+v", got)
	}
}

// A server that has never heard of the end of its clients serves the next one: each line
// has one connection.
func TestStorageClientsVanish(t *testing.T) {
	c := newCircle(t, Spec{Ranks: 5}, nil)
	spec := Spec{Name: "w", Operation: topology.Storage, Size: 64, Depth: 1, Count: 100}
	at := netip.AddrPortFrom(c.address(0), 7000)
	if err := c.hosts[0].Serve(spec, at); err != nil {
		t.Fatal(err)
	}
	s := c.hosts[0].servers[end{"w", 0}].(*storageServer)
	for client := 1; client < 5; client++ {
		var got *Result
		if err := c.hosts[client].Run(spec, c.address(client), at, func(r Result) { got = &r }); err != nil {
			t.Fatal(err)
		}
		busy := func() bool { b := s.current[0]; return b != nil && b.granted == 0 }
		for range 10 { // requests that the server is at
			if !c.clock.RunUntil(busy, time.Second) || !c.clock.RunUntil(func() bool { return !busy() }, time.Second) {
				t.Fatalf("client %d is not served", client)
			}
		}
		if client == 4 {
			if !c.clock.RunUntil(func() bool { return got != nil }, time.Minute) || got.Messages != 100 {
				t.Errorf("%+v", got)
			}
			break
		}
		// It is left without a credit, has nothing to say any more, and vanishes.
		if !c.clock.RunUntil(busy, time.Second) {
			t.Fatal("the server is never busy")
		}
		lenderOf(&c.hosts[client].clients[end{"w", 0}].(*storageClient).channels[0]).credits = math.MaxUint32
		c.clock.Run(100 * time.Millisecond)
		c.cut = client
		c.clock.Run(time.Minute)
		if s.conns.count != 1 {
			t.Errorf("client %d: the server has %d connections", client, s.conns.count)
		}
	}
}

func TestStorageLimits(t *testing.T) {
	for _, test := range []struct {
		want   string
		narrow func(*provider.Config)
	}{
		{"a MaxInitiatorQueueDepth of 49, the adapter has 48", func(c *provider.Config) { c.Info.MaxInitiatorQueueDepth = 48 }},
		{"a MaxReceiveQueueDepth of 16, the adapter has 15", func(c *provider.Config) { c.Info.MaxReceiveQueueDepth = 15 }},
		{"a MaxCqDepth of 130, the adapter has 129", func(c *provider.Config) { c.Info.MaxCqDepth = 129 }},
		{"a MaxRegistrationSize of 3276800, the adapter has 3276799", func(c *provider.Config) { c.Info.MaxRegistrationSize = 3276799 }},
		{"a MaxInboundReadLimit of 1, the adapter has 0", func(c *provider.Config) { c.Info.MaxInboundReadLimit = 0 }},
		{"a MaxCallerData of 4, the adapter has 3", func(c *provider.Config) { c.Info.MaxCallerData = 3 }},
		{"a MaxMrCount of 34, the adapter has 33", func(c *provider.Config) { c.Capabilities.MaxMrCount = 33 }},
		{"a MaxMwCount of 32, the adapter has 31", func(c *provider.Config) { c.Capabilities.MaxMwCount = 31 }},
		{"a FRMRPageCount of 25, the adapter has 16", func(c *provider.Config) { c.Info.MaxWindowSize = 99999 }},
	} {
		spec := Spec{Name: "w", Operation: topology.Storage, Size: 100000, Depth: 16, QPs: 2, Count: 1}
		newLabWith(t, test.narrow).refused(spec, test.want)
	}
}

// lenderOf returns the session of a channel's connection; nil if there is none.
func lenderOf(ch *channel) *lender {
	if ch.conn == nil {
		return nil
	}
	return ch.conn.session.(*lender)
}
