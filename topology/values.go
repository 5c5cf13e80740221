package topology

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
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

// A pattern is compiled when it is first used, and its making allocates nothing: this package is linked into the agent of
// every node, which has no use for it but would pay for it at its start.
type pattern struct {
	text string
	once sync.Once
	made *regexp.Regexp // set by once
}

func (p *pattern) compiled() *regexp.Regexp {
	p.once.Do(func() { p.made = regexp.MustCompile(p.text) })
	return p.made
}

// hostPattern is of names (RFC 1123, section 2.1), and of numbers that are not 0.
const (
	hostPattern = `[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[1-9][0-9]*|[0-9]+[A-Za-z._-](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`
	maxHostName = 253 // bytes
)

var hostNames = &pattern{text: `^(?:` + hostPattern + `)$`}

var plain = &pattern{text: `^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`}

// plainName is a parser for a name of at most most characters.
func plainName(most int) func(string) (string, error) {
	return func(text string) (string, error) {
		switch {
		case text == "":
			return "", errors.New("an empty name, expected a plain one such as node-1")
		case !plain.compiled().MatchString(text):
			return "", fmt.Errorf("%s is no plain name, expected a-z, 0-9 and, inside, -", quote(text))
		case len(text) > most:
			return "", fmt.Errorf("%s has %d characters, expected at most %d", quote(text), len(text), most)
		}
		return text, nil
	}
}

// nameForm is plain names of at most most characters.
func nameForm(most int) form[string] {
	return single(plainName(most), func() schema { return nameSchema(most) })
}

// anyText is a reference to something by its name: whether that exists is found out
// later.
var anyText = single(func(text string) (string, error) { return text, nil }, textSchema)

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

// ranged is numbers or quantities from the least to the most.
func ranged[T cmp.Ordered](parse func(string) (T, error), format func(T) string, least, most T, s func() schema) form[T] {
	f := single(within(parse, format, least, most), s)
	f.ranges = func() string { return format(least) + " to " + format(most) }
	return f
}

// as is the form with its values as another type of numbers, which has room for them.
func as[T int | uint32 | uint64](f form[uint64]) form[T] {
	if same, ok := any(f).(form[T]); ok {
		return same
	}
	return form[T]{schema: f.schema, ranges: f.ranges, parse: func(text string) (T, error) {
		n, err := f.parse(text)
		return T(n), err
	}}
}

// count is numbers without unit.
func count[T int | uint32 | uint64](least, most uint64) form[T] {
	format := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return as[T](ranged(parseCount, format, least, most, func() schema { return whole(least, most) }))
}

// sized is sizes.
func sized[T uint32 | uint64](q quantity, least, most uint64) form[T] {
	parse := func(text string) (uint64, error) { return q.whole(text, "bytes") }
	return as[T](ranged(parse, FormatSize, least, most, sizes.schema))
}

// span is durations.
func span(least, most time.Duration) form[time.Duration] {
	return ranged(parseDuration, FormatDuration, least, most, durationSchema)
}

// The values of a node.
var (
	// The kernel's smallest cpu.max quota is 1 ms, and its period 100 ms.
	cores  = ranged(parseCores, formatNumber, 0.01, 4096, func() schema { return fraction(0.01, 4096) })
	memory = sized[uint64](memories, 16<<20, 16<<40)
	// A host's own process has some twenty threads, and more on machines with many cores.
	// The most is the kernel's PID_MAX_LIMIT.
	pids = count[uint64](64, 1<<22)
	// hostName is a machine's name, as resolvers and schedulers have it, or its number among a lab's hosts.
	hostName = single(func(text string) (string, error) {
		if !hostNames.compiled().MatchString(text) || len(text) > maxHostName {
			return "", fmt.Errorf("found %s, expected a host's name or its number from 1", quote(text))
		}
		return text, nil
	}, func() schema {
		return anyOf(schema{"type": []string{"number", "boolean"}, "minimum": 0.01}, matching(hostPattern))
	})
	// restart tells whether a node whose agent has died is started again.
	restart = choice("never", "always")
	// noVerbs tells whether programs for RDMA are kept from a host's adapter.
	noVerbs = choice("on", "off")
)

// From the least that IPv6 works on (RFC 8200, section 5) to the most that a veth takes:
// ETH_MAX_MTU less an Ethernet header.
var mtu = count[int](1280, 65521)

// yes is true and false.
var yes = single(func(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("found %s, expected true or false", quote(text))
	}
	return text == "true", nil
}, truthSchema)

// onlyTrue reads a value that is either true or left out.
var onlyTrue = single(func(text string) (bool, error) {
	if text != "true" {
		return false, fmt.Errorf("found %s, expected true", quote(text))
	}
	return true, nil
}, onlyTrueSchema)

// choice is one of two words, of which the second is true.
func choice(no, yes string) form[bool] {
	parse := func(text string) (bool, error) {
		if text != no && text != yes {
			return false, fmt.Errorf("found %s, expected %s or %s", quote(text), no, yes)
		}
		return text == yes, nil
	}
	return single(parse, func() schema { return oneWord(no, yes) })
}

// fewWords is one of a few words, all of which a message names.
func fewWords[T ~string](words ...T) form[T] {
	parse := func(text string) (T, error) {
		if !slices.Contains(words, T(text)) {
			return "", fmt.Errorf("found %s, expected %s", quote(text), alternatives(texts(words)))
		}
		return T(text), nil
	}
	return single(parse, func() schema { return oneWord(texts(words)...) })
}

// alternatives is words, of which the last two have an or between them.
func alternatives(words []string) string {
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " or " + words[last]
	}
	return words[0]
}

// manyWords is one of some words, of which a message suggests the nearest.
func manyWords[T ~string](words func() []T) form[T] {
	return form[T]{schema: func() schema { return oneWord(texts(words())...) }, read: func(r *reader, n *yaml.Node) T {
		return scalar(r, n, func(text string) (T, error) {
			if slices.Contains(words(), T(text)) {
				return T(text), nil
			}
			return "", fmt.Errorf("found %s, %s", quote(text), r.expectation(text, texts(words())))
		}).is
	}}
}

// texts is some words as texts.
func texts[T ~string](words []T) []string {
	return textsOf(words, func(w T) string { return string(w) })
}

// endpointName is a link by one of its ends, or an end.
var endpointName = single(endpoint, func() schema { return matching(`[^:]*:[\s\S]*`) })

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
func ParseMemory(text string) (uint64, error) { return memory.parse(text) }

// ParseBufferSize is a size in bytes of a packet buffer that ports share.
func ParseBufferSize(text string) (uint64, error) { return bufferSize.parse(text) }
