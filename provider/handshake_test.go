package provider_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// TestFirstTimeout: how soon the first packets of a connection are sent again
// follows from how long the peer took to answer when the connection was made, at
// either end. On a long path nothing is sent again for want of patience; on a
// short one what was lost is not waited for longer than need be: twice the handshake or 5
// ms, and two round trips for the probe and the packet.
func TestFirstTimeout(t *testing.T) {
	for _, delay := range []time.Duration{100 * time.Microsecond, time.Millisecond, 25 * time.Millisecond, 45 * time.Millisecond} {
		for end, name := range []string{"active", "passive"} {
			t.Run(fmt.Sprint(delay, " ", name), func(t *testing.T) {
				w := newWorld(t)
				w.path.Delay = delay
				w.connect()
				from, to := w.hosts[end], w.hosts[1-end]
				write := func() {
					w.want(from.qp.Write(nil, from.at(0, 200_000), base, to.mr.RemoteToken(), 0), success)
				}
				write()
				from.result(success)
				if n := from.device.TransportCounters()["retransmitted"]; n != 0 {
					t.Errorf("%d packets sent again on a path that lost none", n)
				}

				w.rejoin()
				from, to = w.hosts[end], w.hosts[1-end]
				w.path.Down = true
				start := w.clock.Now()
				w.want(from.qp.Write(nil, from.at(0, 100), base, to.mr.RemoteToken(), 0), success)
				w.path.Down = false
				from.result(success)
				if took, most := w.clock.Now()-start, max(8*delay, 4*delay+5*time.Millisecond)+100*time.Microsecond; took > most {
					t.Errorf("a packet that was lost took %v", took)
				}
				w.path.Delay = 0 // what is under way at the end is not waited for
			})
		}
	}
}

// TestFirstTimeoutOfARepeatedRequest: a handshake that took long for another
// reason than the path does not put off the repair by as long.
func TestFirstTimeoutOfARepeatedRequest(t *testing.T) {
	w := newWorld(t)
	client, server := w.hosts[0], w.hosts[1]
	server.listen(func(c *provider.Connector) {
		w.clock.AfterFunc(5*time.Second, func() { server.accept(c) })
	})
	client.conn = client.newConnector()
	w.want(w.finish(client.dial(client.conn, server)), success)
	w.want(client.complete(), success)
	w.settle()
	w.path.Down = true
	start := w.clock.Now()
	w.want(client.qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
	w.path.Down = false
	client.result(success)
	if took := w.clock.Now() - start; took > 250*time.Millisecond {
		t.Errorf("a packet that was lost took %v", took)
	}
}
