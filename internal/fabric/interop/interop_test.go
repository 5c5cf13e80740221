package interop

import (
	"os"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// subjects are the tests of a lab with a guest, each in a file of its own. Nothing
// may be lost or refused in them until the guest itself loses packets, and nothing
// may fail then.
var subjects = []struct {
	name string
	test func(*setting, *testing.T)
}{
	{"rping", (*setting).rping},
	{"pingpong", (*setting).pingpong},
	{"ucmatose", (*setting).ucmatose},
}

// The guest is on a link that the engine delays, by sockets, and on one that the
// kernel carries, by a tap, where there is nothing else to see than that it works.
func TestGuest(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	for _, attached := range []struct {
		name  string
		link  string
		boot  func(*testing.T, report.External) guest
		plain bool
	}{
		{"sockets", "mtu: 1500, delay: 1ms", bySockets, false},
		{"tap", "mtu: 1500", byTap, true},
	} {
		t.Run(attached.name, func(t *testing.T) {
			s := newSetting(t, attached.link, "", attached.boot)
			s.plain, s.short = attached.plain, attached.plain || testing.Short()
			t.Run("ping", s.ping)
			s.all(t)
			t.Run("counters", s.counters)
			if s.plain {
				t.Run("wire", s.wire)
				return
			}
			t.Run("loss", func(t *testing.T) {
				s.impair(t)
				s.all(t)
				t.Run("counters", s.endured)
				s.mend(t)
			})
			t.Run("rejections", s.rejections)
			t.Run("deaths", s.deaths)
			t.Run("cuts", s.cuts)
			t.Run("wire", s.wire)
			t.Run("vanish", s.vanish)
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

// impair has the guest lose and reorder what its network card sends, and what
// that receives, which is sent through a device in between to that end.
func (s *setting) impair(t *testing.T) {
	for _, command := range []string{
		"modprobe ifb numifbs=0 && ip link add ifb0 type ifb && ip link set ifb0 up",
		"tc qdisc add dev eth0 ingress && tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0",
		"tc qdisc replace dev eth0 root netem limit 10000 delay 2ms loss 1% reorder 0.5%",
		"tc qdisc replace dev ifb0 root netem limit 10000 delay 2ms loss 1% reorder 0.5%",
	} {
		s.guest.run(t, command)
	}
	s.lossy = true
}

func (s *setting) mend(t *testing.T) {
	s.guest.run(t, "tc qdisc del dev eth0 ingress")
	s.guest.unhurried(t)
	s.lossy = false
}
