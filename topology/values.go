package topology

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The names of things and the ranges of values. They are wide: they refuse what
// cannot work or is surely a slip, not what is unusual.
const (
	MaxLabName = 40 // characters

	maxNodeName = 32 // characters; also of kinds, groups and workloads

	maxInterfaceName = 15 // bytes: IFNAMSIZ less its final zero

	defaultMTU = 4200 // bytes: one RoCE packet of path MTU 4096 with its headers

	exampleAddress = "10.1.0.1/24"
)

// lazily compiles a pattern when it is first used: this package is linked into
// the agent of every node, which has no use for it but would pay for it at its
// start.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var plain = lazily(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// plainName is a parser for a name of at most most characters.
func plainName(most int) func(string) (string, error) {
	return func(text string) (string, error) {
		switch {
		case text == "":
			return "", errors.New("an empty name, expected a plain one such as node-1")
		case !plain().MatchString(text):
			return "", fmt.Errorf("%s is no plain name, expected a-z, 0-9 and, inside, -", quote(text))
		case len(text) > most:
			return "", fmt.Errorf("%s has %d characters, expected at most %d", quote(text), len(text), most)
		}
		return text, nil
	}
}

// anyText takes a reference to something by its name as it is: whether that
// exists is found out later.
func anyText(text string) (string, error) { return text, nil }

// interfaceName takes what the kernel does (dev_valid_name in net/core/dev.c),
// less what it gives a meaning of its own: lo, a pattern (%), and the
// directories all and default of net.ipv4.conf.
func interfaceName(text string) (string, error) {
	switch {
	case text == "" || text == "." || text == ".." || text == "lo" || text == "all" || text == "default":
		return "", fmt.Errorf("%q is not free as an interface name, expected one such as eth0", text)
	case len(text) > maxInterfaceName:
		return "", fmt.Errorf("interface name %s has %d bytes, expected at most %d", quote(text), len(text), maxInterfaceName)
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("/:%", c) }):
		return "", fmt.Errorf("%s is no interface name, expected printable ASCII without space, /, : and %%", quote(text))
	}
	return text, nil
}

// within is a parser that holds what parse yields to a range.
func within[T cmp.Ordered](parse func(string) (T, error), format func(T) string, least, most T) func(string) (T, error) {
	return func(text string) (T, error) {
		v, err := parse(text)
		if err == nil && (v < least || v > most) {
			err = fmt.Errorf("%s is out of range, expected %s to %s", text, format(least), format(most))
		}
		if large := (*tooLargeError)(nil); errors.As(err, &large) {
			err = fmt.Errorf("%s is too large, expected %s to %s", quote(text), format(least), format(most))
		}
		return v, err
	}
}

// count is a parser for a number without unit.
func count[T int | uint32 | uint64](least, most uint64) func(string) (T, error) {
	parse := within(parseCount, func(n uint64) string { return strconv.FormatUint(n, 10) }, least, most)
	return func(text string) (T, error) {
		n, err := parse(text)
		return T(n), err
	}
}

// sized is a parser for a size.
func sized[T uint32 | uint64](q quantity, least, most uint64) func(string) (T, error) {
	parse := within(func(text string) (uint64, error) { return q.whole(text, "bytes") }, FormatSize, least, most)
	return func(text string) (T, error) {
		n, err := parse(text)
		return T(n), err
	}
}

// span is a parser for a duration.
func span(least, most time.Duration) func(string) (time.Duration, error) {
	return within(parseDuration, FormatDuration, least, most)
}

// The values of a node.
var (
	// The kernel's smallest cpu.max quota is 1 ms, and its period 100 ms.
	cores  = within(parseCores, formatNumber, 0.01, 4096)
	memory = sized[uint64](memories, 16<<20, 16<<40)
	// A host's own process has some twenty threads, and more on machines with many cores.
	// The most is the kernel's PID_MAX_LIMIT.
	pids = count[uint64](64, 1<<22)
	// Whether a node whose agent has died is started again.
	restart = choice("never", "always")
	// Whether programs for RDMA are kept from a host's adapter.
	noVerbs = choice("on", "off")
)

// The values of a link.
var (
	// From the least that IPv6 works on (RFC 8200, section 5) to the most that
	// a veth takes: ETH_MAX_MTU less an Ethernet header.
	mtu = count[int](1280, 65521)
)

// yes is a parser for true and false.
func yes(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("found %s, expected true or false", quote(text))
}

// choice is a parser for one of two words, of which the second is true.
func choice(no, yes string) func(string) (bool, error) {
	return func(text string) (bool, error) {
		if text != no && text != yes {
			return false, fmt.Errorf("found %s, expected %s or %s", quote(text), no, yes)
		}
		return text == yes, nil
	}
}

// engine is a parser for what applies a link's impairments.
func engine(text string) (Engine, error) {
	switch e := Engine(text); e {
	case Linkem, Netem:
		return e, nil
	}
	return "", fmt.Errorf("found %s, expected linkem or netem", quote(text))
}

// onlyTrue is a parser for what is either true or left away.
func onlyTrue(text string) (bool, error) {
	if text != "true" {
		return false, fmt.Errorf("found %s, expected true", quote(text))
	}
	return true, nil
}

// endpoint is a parser for a link's end in its brief form.
func endpoint(text string) (Endpoint, error) {
	node, iface, ok := strings.Cut(text, ":")
	if !ok {
		return Endpoint{}, fmt.Errorf("found %s, expected an endpoint node:interface such as node-1:eth0", quote(text))
	}
	return Endpoint{Node: node, Interface: iface}, nil
}

// address is a parser for an interface's address with its subnet.
func address(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			length := 24
			if a.Is6() {
				length = 64
			}
			return p, fmt.Errorf("%s has no prefix length, expected an address such as %s/%d", quote(text), text, length)
		}
		return p, fmt.Errorf("found %s, expected an address with its prefix length such as %s", quote(text), exampleAddress)
	}
	a := p.Addr()
	switch {
	case a.Is4In6(), a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.Is6() && a.IsLinkLocalUnicast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return p, fmt.Errorf("%s cannot be an interface's own, expected a unicast address such as %s", text, exampleAddress)
	case p.Bits() == 0:
		return p, fmt.Errorf("%s has everything in its subnet, expected a longer prefix such as %s", text, exampleAddress)
	case !usable(p, a):
		return p, fmt.Errorf("%s is the subnet itself or its broadcast address, expected one between them", text)
	}
	return p, nil
}

// ParseMemory is a size of memory in bytes, as a host's.
func ParseMemory(text string) (uint64, error) { return memory(text) }
