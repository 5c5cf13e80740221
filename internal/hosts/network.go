package hosts

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
)

// ParseNetwork reads the value of --network, "" if all networks will do.
func ParseNetwork(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil || network != network.Masked() {
		return netip.Prefix{}, control.Errorf(control.Usage, "no network, expected an address without host bits and a length, such as 10.1.0.0/16")
	}
	return network, nil
}

// A portRange is one of TCP ports; the zero portRange is any port.
type portRange struct{ first, last int }

// srunPorts returns the ports to which a firewall of a cluster has to let workers come: srun itself listens in them
// (slurm.conf(5), SrunPortRange).
func srunPorts() (portRange, error) {
	out, err := exec.Command("scontrol", "show", "config").Output()
	if err != nil {
		return portRange{}, control.Errorf(control.Unable, "scontrol show config: %v: run ndklab where Slurm's commands work", err)
	}
	return portsIn(string(out))
}

// portsIn finds SrunPortRange in what scontrol shows: 60001-63000, or 0-0 if there is none.
func portsIn(config string) (portRange, error) {
	for line := range strings.Lines(config) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) != "SrunPortRange" {
			continue
		}
		value = strings.TrimSpace(value)
		first, last, ok := strings.Cut(value, "-")
		from, fromErr := strconv.ParseUint(first, 10, 16)
		to, toErr := strconv.ParseUint(last, 10, 16)
		if !ok || fromErr != nil || toErr != nil || from > to {
			return portRange{}, control.Errorf(control.Unable, "SrunPortRange of Slurm's configuration is %q, expected two ports such as 60001-63000", value)
		}
		if from == 0 {
			return portRange{}, nil
		}
		return portRange{int(from), int(to)}, nil
	}
	return portRange{}, nil
}

// listen returns a socket for the workers, and the addresses by which they reach it: one of the network, if that is not "".
func (p *plan) listen(in string) (*os.File, []string, error) {
	network, err := ParseNetwork(in)
	switch {
	case err != nil:
		return nil, nil, err
	case p.loopback && network.IsValid():
		return nil, nil, control.Errorf(control.Usage, "--network %s: the workers are all on this machine, expected no --network with local:N", network)
	case p.loopback:
		return p.ports.open([]string{"127.0.0.1"}, "127.0.0.1")
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, nil, err
	}
	addresses, err := reachable(own, network)
	if err != nil {
		return nil, nil, err
	}
	if network.IsValid() {
		return p.ports.open(addresses[:1], addresses[0])
	}
	return p.ports.open(addresses, "")
}

// open listens at an address, "" for all, and returns the addresses with the port.
func (r portRange) open(addresses []string, at string) (*os.File, []string, error) {
	l, err := r.listen(at)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for i, a := range addresses {
		addresses[i] = net.JoinHostPort(a, port)
	}
	return file, addresses, nil
}

// listen listens at an address, "" for all. It begins anywhere in the range: other labs are in it, too.
func (r portRange) listen(address string) (net.Listener, error) {
	if r == (portRange{}) {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			return nil, control.Errorf(control.Unable, "no port for the hosts of the lab: %v", err)
		}
		return l, nil
	}
	count := r.last - r.first + 1
	begin := os.Getpid() % count
	var problem error
	for i := range count {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(r.first+(begin+i)%count)))
		if err == nil {
			return l, nil
		}
		problem = err
	}
	return nil, control.Errorf(control.Unable, "no port for the hosts of the lab is free from %d to %d: %v", r.first, r.last, problem)
}

// reachable returns those of a machine's own addresses by which other hosts may reach it, and which are in network if it is valid.
func reachable(own []net.Addr, network netip.Prefix) (found []string, err error) {
	var others []string
	for _, a := range own {
		p, ok := a.(*net.IPNet)
		if !ok || !p.IP.IsGlobalUnicast() {
			continue
		}
		address, _ := netip.AddrFromSlice(p.IP)
		address = address.Unmap()
		if network.IsValid() && !network.Contains(address) {
			others = append(others, p.String())
			continue
		}
		found = append(found, address.String())
	}
	if len(found) > 0 {
		return found, nil
	}
	if others != nil {
		return nil, control.Errorf(control.Usage, "--network %s: this machine has no address in it, expected the network of one of %s", network, strings.Join(others, ", "))
	}
	return nil, control.Errorf(control.Unable, "this machine has no address by which other hosts could reach it: set one up, or use --hosts local:N")
}
