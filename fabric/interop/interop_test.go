package interop

import (
	"os"
	"testing"

	"github.com/ndklab/ndklab/fabric/report"
)

// subjects are what a lab and a guest do with each other, each in a file of its
// own. In all of it nothing is to be lost or refused, until the guest itself
// loses packets; nor is anything to fail then.
var subjects = []struct {
	name string
	test func(*setting, *testing.T)
}{
	{"rping", (*setting).rping},
}

// The guest is on a link that the kernel carries, by a tap, and on one that the
// engine delays, by sockets.
func TestGuest(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	for _, attached := range []struct {
		name  string
		delay string
		boot  func(*testing.T, report.External) guest
	}{
		{"sockets", "delay: 1ms", bySockets},
		{"tap", "", byTap},
	} {
		t.Run(attached.name, func(t *testing.T) {
			s := newSetting(t, attached.delay, attached.boot)
			t.Run("ping", s.ping)
			s.all(t)
			t.Run("counters", s.counters)
			t.Run("loss", func(t *testing.T) {
				s.guest.run(t, "tc qdisc add dev eth0 root netem delay 2ms loss 1% reorder 0.5%")
				s.lossy = true
				s.all(t)
				t.Run("counters", s.endured)
			})
		})
	}
}

func (s *setting) ping(t *testing.T) {
	for _, p := range s.pairs {
		s.guest.run(t, "ping -c 3 -i 0.2 -W 5 -q "+p.node.String())
	}
}

// all tests every subject.
func (s *setting) all(t *testing.T) {
	for _, subject := range subjects {
		t.Run(subject.name, func(t *testing.T) { subject.test(s, t) })
	}
}
