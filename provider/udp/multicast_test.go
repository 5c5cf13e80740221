package udp

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A packet to a multicast group arrives at every carrier that has joined the group, also at two on one host, as the
// processes that share an adapter have them, and at none that has left.
func TestMulticast(t *testing.T) {
	for i, group := range []netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff0e::1:2")} {
		t.Run(group.String(), func(t *testing.T) {
			ends := newLink(t, 4200)
			var from, to, another *Carrier
			var arrived [2]collector
			from = closeLater(t, openIn(t, ends[0], addressesOf(0)...))
			to = closeLater(t, openIn(t, ends[1], addressesOf(1)...))
			within(t, ends[1], func() (err error) {
				files, err := to.Share(1)
				if err != nil {
					return err
				}
				another, err = Open(Config{Addresses: addressesOf(1), Sockets: files})
				for _, f := range files {
					f.Close()
				}
				return err
			})
			closeLater(t, another)
			for k, c := range []*Carrier{to, another} {
				arrived[k] = newCollector()
				c.Listen(arrived[k])
				within(t, ends[1], func() error { return c.Join(group) })
			}
			flow := roce.Flow{Local: from.Addresses()[i], Remote: group}
			flow.SourcePort = from.SourcePort(flow.Local, 17)
			send := func(payload string) {
				p := roce.Packet{Header: roce.Header{Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: 0xFFFFFF}, Payload: [][]byte{[]byte(payload)}, Class: data26}
				mustSend(t, from, flow, []roce.Packet{p, p})
			}
			send("once")
			for _, c := range arrived {
				for _, p := range c.take(t, 2) {
					if p.Flow.Local != group || p.Flow.Remote != flow.Local || string(p.Payload) != "once" || p.Class != data26 {
						t.Errorf("%v: %q of class %#x", p.Flow, p.Payload, p.Class)
					}
				}
			}
			another.Leave(group)
			send("twice")
			arrived[0].take(t, 2)
			if n := len(arrived[1]); n != 0 {
				t.Errorf("%d packets arrived after the end of membership", n)
			}
			if n := to.Counters()["icrc_errors"]; n != 0 {
				t.Errorf("%d packets were wrong", n)
			}
		})
	}
}
