package udp

import (
	"os"
	"strings"
	"testing"
)

// TestSpare has a carrier of this thread's namespace, in which the addresses are not,
// send and receive in another one with the sockets that it was handed.
func TestSpare(t *testing.T) {
	ends := newLink(t, 1500)
	owner, peer := closeLater(t, openIn(t, ends[0], addressesOf(0)...)), closeLater(t, openIn(t, ends[1], addressesOf(1)...))
	var sockets, spare []*os.File
	within(t, ends[0], func() (err error) {
		if sockets, err = owner.Share(1); err != nil {
			return err
		}
		spare, err = Spare(owner.Addresses())
		return err
	})
	cfg := Config{Addresses: owner.Addresses(), Interfaces: owner.Interfaces(), Sockets: sockets, Spare: spare}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, c)
	closeFiles(t, sockets)
	closeFiles(t, spare)

	here, there := newCollector(), newCollector()
	c.Listen(here)
	peer.Listen(there)
	for i, local := range c.Addresses() {
		if got := c.MTU(local); got != 1500 {
			t.Errorf("MTU %d at %v, want that of the namespace with the sockets, 1500", got, local)
		}
		if status := c.Reach(local, peer.Addresses()[i]); status != 0 {
			t.Errorf("%v does not reach %v: %v", local, peer.Addresses()[i], status)
		}
		packets := addressed(17, writes(random(8<<10), 1024)...)
		mustSend(t, c, flowBetween(c, peer, i), packets)
		there.take(t, len(packets))
		packets = addressed(1<<18+5, packets...)
		mustSend(t, peer, flowBetween(peer, c, i), packets)
		here.take(t, len(packets))
	}

	cfg.Spare = spare[1:]
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "17 spare sockets for 2 addresses") {
		t.Errorf("with a socket too few: %v", err)
	}
}
