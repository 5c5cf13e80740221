package hosts

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/control"
)

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{"": "invalid Prefix", "10.1.0.0/16": "10.1.0.0/16", "fd00::/8": "fd00::/8"} {
		if got, err := ParseNetwork(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"ib0", "10.1.0.0", "10.1.0.1/16", "10.1.0.0/33"} {
		if _, err := ParseNetwork(text); err == nil || control.CodeOf(err) != control.Usage || !strings.Contains(err.Error(), "no network, expected an address without host bits") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPortsIn: the text is what scontrol shows, but for most of its lines.
func TestPortsIn(t *testing.T) {
	show := func(value string) string {
		return "Configuration data as of 2026-11-28T21:00:00\nSrunEpilog              = (null)\nSrunPortRange           = " + value + "\nSrunProlog              = (null)\n"
	}
	for text, want := range map[string]portRange{show("60001-63000"): {60001, 63000}, show("7-7"): {7, 7}, show("0-0"): {}, "": {}} {
		if got, err := portsIn(text); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, value := range []string{"60001", "63000-60001", "1-70000", "(null)"} {
		if _, err := portsIn(show(value)); err == nil || !strings.Contains(err.Error(), "SrunPortRange of Slurm's configuration is") {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestPortRange: the head listens at a port of the range that is free, and says so if there is none.
func TestPortRange(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	if l, err := (portRange{port, port}).listen("127.0.0.1"); err == nil || !strings.Contains(err.Error(), "no port for the hosts of the lab is free from") {
		t.Errorf("%v, %v", l, err)
	}
	// Ports beside may be taken as well: of so many, one is free.
	r := portRange{max(1, port-100), port}
	l, err := r.listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Addr().(*net.TCPAddr).Port; got < r.first || got >= port {
		t.Errorf("port %d, want one from %d to %d", got, r.first, port-1)
	}
}

func TestReachable(t *testing.T) {
	var own []net.Addr
	for _, text := range []string{"127.0.0.1/8", "10.1.2.3/16", "192.168.7.1/24", "fe80::1/64", "fd00::5/64"} {
		ip, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	for in, want := range map[string][]string{
		"": {"10.1.2.3", "192.168.7.1", "fd00::5"}, "192.168.0.0/16": {"192.168.7.1"}, "10.1.2.3/32": {"10.1.2.3"}, "fd00::/8": {"fd00::5"},
	} {
		network, err := ParseNetwork(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := reachable(own, network)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", in, err, diff)
		}
	}
	network, err := ParseNetwork("172.16.0.0/12")
	if err != nil {
		t.Fatal(err)
	}
	_, err = reachable(own, network)
	if want := "--network 172.16.0.0/12: this machine has no address in it, expected the network of one of 10.1.2.3/16, 192.168.7.1/24, fd00::5/64"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err = reachable(own[:1], network); err == nil || !strings.Contains(err.Error(), "no address by which other hosts could reach it") {
		t.Errorf("%v", err)
	}
}

// TestNetworkOfWorkersHere: workers on this machine have no use for a network, and are not given up for one in silence.
func TestNetworkOfWorkersHere(t *testing.T) {
	_, err := NewLaunch(Spec{Kind: Local, Count: 1, Network: "10.0.0.0/8"}, "big", new(safeLog))
	if err == nil || !strings.Contains(err.Error(), "expected no --network with local:N") {
		t.Errorf("%v", err)
	}
}
