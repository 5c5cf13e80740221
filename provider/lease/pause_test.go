package lease

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// TestPause: while packets of its class are paused nothing leaves a queue pair, neither requests nor acknowledgements, in
// the owner and in another process; connections are made all the same. It goes on when the pause is over, and nothing had to be sent
// again for it, and pauses of other classes are of no concern.
func TestPause(t *testing.T) {
	const mine = 1 << 0 // the DSCP of packets, as none is set
	for name, device := range map[string]func(*testing.T, *Server) *provider.Miniport{
		"owner":   func(_ *testing.T, s *Server) *provider.Miniport { return s.Device() },
		"process": func(t *testing.T, _ *Server) *provider.Miniport { return opened(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, config(1))
			paused := device(t, s)
			other := consuming(t, peer(t))
			c := consuming(t, paused)
			s.Pause(ours[0], mine)
			s.Pause(ours[1], ^uint64(0))
			l := listening(t, other, netip.AddrPortFrom(theirs[0], 0))
			address, err := l.Address()
			if err != nil {
				t.Fatal(err)
			}
			accepted := make(chan error, 1)
			go func() { accepted <- other.accept(patient(t), l) }()
			if err := c.dial(patient(t), ours[0], address); err != nil {
				t.Fatal(err)
			}
			if err := <-accepted; err != nil {
				t.Fatal(err)
			}

			// A message to the paused end arrives, and is not acknowledged.
			before := paused.TransportCounters()
			copy(other.memory, bytes.Repeat([]byte{'o'}, 4096))
			if status := other.qp.Send(nil, other.half(0), 0); status != provider.StatusSuccess {
				t.Fatal(status)
			}
			if _, err := c.cq.One(patient(t)); err != nil {
				t.Fatal(err)
			}
			// One from there does not leave.
			copy(c.memory, bytes.Repeat([]byte{'c'}, 4096))
			if status := c.qp.Send(nil, c.half(0), 0); status != provider.StatusSuccess {
				t.Fatal(status)
			}
			during := paused.TransportCounters()
			if sent := during["packets_sent"] - before["packets_sent"]; sent > 0 {
				t.Errorf("%d packets were sent in a pause", sent)
			}

			s.Pause(ours[0], ^uint64(mine))
			for range 2 { // its own message, and the peer's, which is acknowledged now
				if _, err := other.cq.One(patient(t)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.cq.One(patient(t)); err != nil {
				t.Fatal(err)
			}
			if after := paused.TransportCounters(); after["retransmitted"] > before["retransmitted"] {
				t.Errorf("%d packets were sent again", after["retransmitted"]-before["retransmitted"])
			}

			// A queue pair ends in a pause as at any other time.
			s.Pause(ours[0], mine)
			if err := await.Disconnect(patient(t), c.conn); err != nil {
				t.Error(err)
			}
			<-other.disconnected
		})
	}
}
