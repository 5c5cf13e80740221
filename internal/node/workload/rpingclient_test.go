package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

func TestRping(t *testing.T) {
	for _, loss := range []float64{0, 0.02} {
		for _, size := range []uint64{28, 64, 65535} {
			for _, pend := range []bool{false, true} {
				t.Run(fmt.Sprintf("loss %v size %d pend %v", loss, size, pend), func(t *testing.T) {
					l := newLabWith(t, func(c *provider.Config) { c.Pend = pend })
					l.path.Loss = loss
					spec := Spec{Name: "w", Operation: topology.Rping, Size: size, Depth: 1, Count: 100, Verify: true}
					got, found := l.play(spec, nil)
					if got.Messages != 100 || got.Bytes != 100*size || !spec.Conclude(&got, found) {
						t.Errorf("client %+v, server %+v", got, found)
					}
					// Three round trips of 2 ms: the READ, which is answered, and the WRITE. The first READ and
					// WRITE of many packets may take one more each, on a way that is not known yet.
					if got.LatencyMin < 6*time.Millisecond || loss == 0 && got.LatencyMax > 10*time.Millisecond {
						t.Errorf("latencies from %v to %v", got.LatencyMin, got.LatencyMax)
					}
				})
			}
		}
	}
}

// A text that comes back otherwise than it was sent is found.
func TestRpingCompares(t *testing.T) {
	l := newLab(t)
	got, _ := l.play(Spec{Name: "w", Operation: topology.Rping, Size: 64, Count: 20}, func(client, server *Host) {
		w := client.clients[end{"w", 0}].(*rpingClient)
		l.clock.RunUntil(func() bool { return w.next == 8 }, time.Second)
		l.clock.Run(3500 * time.Microsecond) // round 7's text is at the server
		server.servers[end{"w", 0}].(*rpingServer).conns.first.session.(*ponger).text.bytes[30] = '!'
	})
	if got.Messages != 19 || got.Errors != 1 || !strings.HasPrefix(got.Error, "round 7: byte 30 came back as 0x21, sent was 0x") {
		t.Errorf("%+v", got)
	}
}

func TestRpingEnds(t *testing.T) {
	for _, test := range []struct {
		name           string
		change         func(l *lab, client *Host)
		within         time.Duration
		client, server string // errors
	}{
		{"stop", func(_ *lab, client *Host) { client.Stop("w", 0) }, 20 * time.Millisecond, "", ""},
		{"abort", func(_ *lab, client *Host) { client.Abort("w", 0, "enough") }, time.Second, "enough", ""},
		{"client disabled", func(l *lab, _ *Host) { l.devices[0].SetState(false) }, time.Second, disabled, ""},
		{"server disabled", func(l *lab, _ *Host) { l.devices[1].SetState(false) }, time.Second, "the peer disconnected", disabled},
		{"server dead", func(l *lab, _ *Host) { l.path.Down = true }, 6 * time.Second, "no answer from the peer has arrived: STATUS_IO_TIMEOUT", "STATUS_IO_TIMEOUT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			got, found := l.play(Spec{Name: "w", Operation: topology.Rping, Size: 64, Duration: time.Hour}, func(client, _ *Host) {
				l.clock.Run(time.Second)
				test.change(l, client)
			})
			errors := uint64(1)
			if test.client == "" {
				errors = 0
			}
			if got.Messages == 0 || got.Errors != errors || !strings.HasSuffix(got.Error, test.client) || found.Error != test.server {
				t.Errorf("client %+v, server %+v", got, found)
			}
			if l.ended > time.Second+test.within {
				t.Errorf("it ended after %v", l.ended)
			}
		})
	}
}

func TestRpingLimits(t *testing.T) {
	for _, size := range []uint64{27, 65536} {
		spec := Spec{Name: "w", Operation: topology.Rping, Size: size, Count: 1}
		l := newLab(t)
		want := fmt.Sprintf("size %d, rping has texts of 28 to 65535 bytes", size)
		for _, err := range []error{
			NewHost(l.devices[1], l.clock).Serve(spec, serverAddress),
			NewHost(l.devices[0], l.clock).Run(spec, clientAddress, serverAddress, nil),
		} {
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	for _, test := range []struct {
		want   string
		narrow func(*provider.Config)
	}{
		{"a MaxInitiatorQueueDepth of 5, the adapter has 4", func(c *provider.Config) { c.Info.MaxInitiatorQueueDepth = 4 }},
		{"a MaxCqDepth of 6, the adapter has 5", func(c *provider.Config) { c.Info.MaxCqDepth = 5 }},
		{"a MaxTransferLength of 1000, the adapter has 999", func(c *provider.Config) { c.Info.MaxTransferLength = 999 }},
		{"a MaxRegistrationSize of 1000, the adapter has 999", func(c *provider.Config) { c.Info.MaxRegistrationSize = 999 }},
		{"a MaxInboundReadLimit of 1, the adapter has 0", func(c *provider.Config) { c.Info.MaxInboundReadLimit = 0 }},
	} {
		newLabWith(t, test.narrow).refused(Spec{Name: "w", Operation: topology.Rping, Size: 1000, Count: 1}, test.want)
	}
}
