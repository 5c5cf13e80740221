package topology

import (
	"cmp"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/topology/filter"
	"gopkg.in/yaml.v3"
)

// captureRing is the size of a ring's files: smaller ones would hold little but their
// headers.
var captureRing = sized[uint64](sizes, 16<<10, 1<<40)

// MinSnaplen is the least number of bytes that a capture records of a packet: the Ethernet
// header.
const MinSnaplen = 14

// ParseRingSize reads from how many bytes on a file of a ring is full, with its
// unit, such as 10MiB.
func ParseRingSize(text string) (uint64, error) { return captureRing.parse(text) }

// defaultRingFiles is the number of files of a ring that stay.
const defaultRingFiles = 5

// captureFilter is a parser for a filter, which it leaves as it is.
func captureFilter(text string) (string, error) {
	_, err := filter.Parse(text)
	return text, err
}

// captureFile is a path.
var captureFile = single(capturePath, func() schema { return reference("path") })

// linkCapture is a link's own key: true, false, or the file.
var linkCapture = single(func(text string) (string, error) {
	if text == "true" || text == "false" {
		return text, nil
	}
	return capturePath(text)
}, func() schema { return anyOf(truthSchema(), captureFile.schema()) })

func capturePath(text string) (string, error) {
	if text == "" || text == "-" || strings.HasSuffix(text, "/") {
		return "", errors.New("found " + quote(text) + ", expected the path of a file such as client.pcapng")
	}
	return text, nil
}

// A captureMap is a capture, with the words for what it records.
type captureMap struct {
	Capture
	interfaces []val[Endpoint]
}

var ringTable = sync.OnceValue(func() *keyTable[Capture] {
	return &keyTable[Capture]{
		what: "a ring", noun: "ring", required: []string{"size"},
		keys: []key[Capture]{
			one("size", captureRing, func(m *Capture) *uint64 { return &m.RingSize }, "from which a file is full and another begun, $range"),
			one("files", count[int](1, 10000), func(m *Capture) *int { return &m.RingFiles }, "how many of the last files stay, $range").orElse(strconv.Itoa(defaultRingFiles)),
		},
	}
})

var captureTable = sync.OnceValue(func() *keyTable[captureMap] {
	return &keyTable[captureMap]{
		what: "a capture", noun: "capture", def: "capture", required: []string{"file"}, exactlyOne: []string{"link", "interfaces"},
		keys: []key[captureMap]{
			asking[captureMap]("link", endpointName, "a link, by an endpoint: both its ends are recorded"),
			one("interfaces", captureEnds, func(m *captureMap) *[]val[Endpoint] { return &m.interfaces }, "or a list of endpoints. One of both is needed"),
			one("file", captureFile, func(m *captureMap) *string { return &m.File }, "where to, below the folder where ndklab is started. What is there is overwritten. Each capture has its own"),
			one("filter", single(captureFilter, textSchema), func(m *captureMap) *string { return &m.Filter }, "which packets, in the language of tcpdump, with addresses and numbers instead of names").orElse("all"),
			one("snaplen", count[int](MinSnaplen, 1<<18), func(m *captureMap) *int { return &m.Snaplen }, "bytes of each packet that are kept, $range").orElse("all"),
			block("ring", mapOf(ringTable, withPlaces), func(m *captureMap) *Capture { return &m.Capture }, "`{size: 10MiB, files: 5}`: a new file, `ring_00001.pcapng` and so on, after each `size`, of which the last `files` stay, see below"),
		},
	}
})

// captureEnds is a list of endpoints, one at least.
var captureEnds = form[[]val[Endpoint]]{
	schema: func() schema { return schema{"type": "array", "minItems": 1, "items": endpointName.schema()} },
	read: func(r *reader, n *yaml.Node) []val[Endpoint] {
		ends := listOf(placed(endpointName)).of(r, n).is
		if isNull(n) || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			r.valueError(n, "no interfaces, expected some such as [\"node-1:eth0\"]")
		}
		return ends
	},
}

// captures resolves the captures of the file: those of links, and those on their
// own.
func (l *nameIndex) captures(links []*mapping[linkMap], maps []*mapping[captureMap]) []Capture {
	var captures []Capture
	taken := map[string]*yaml.Node{}
	add := func(at *yaml.Node, c Capture) {
		// The same file by another path is for the system to notice.
		if first := taken[filepath.Clean(c.File)]; first != nil {
			l.errorf(at, "a second capture to %s, expected another file (line %d has it)", quote(c.File), first.Line)
			return
		}
		taken[filepath.Clean(c.File)] = at
		captures = append(captures, c)
	}
	for i, m := range links {
		if !m.ok("capture") || m.is.capture == "false" {
			continue
		}
		c := Capture{Interfaces: l.links[i].Endpoints[:], File: m.is.capture}
		if c.File == "true" {
			e := c.Interfaces[0]
			c.File = l.lab.Name + "-" + e.Node + "-" + e.Interface + ".pcapng"
		}
		add(m.place("capture"), c)
	}
	for _, m := range maps {
		c := m.is.Capture
		if c.RingSize > 0 {
			c.RingFiles = cmp.Or(c.RingFiles, defaultRingFiles)
		}
		for _, e := range l.linksAt(m.word("link")) {
			if i, ok := l.linkAt(asEndpoint(e)); ok {
				c.Interfaces = append(c.Interfaces, l.links[i].Endpoints[:]...)
			}
		}
		c.Interfaces = append(c.Interfaces, l.interfacesAt(m.is.interfaces)...)
		if m.ok("file") {
			add(m.place("file"), c)
		}
	}
	return captures
}

// interfacesAt is the endpoints that words stand for, each once.
func (l *nameIndex) interfacesAt(words []val[Endpoint]) []Endpoint {
	var list []val[string]
	for _, w := range words {
		list = append(list, val[string]{w.at, w.is.String(), w.ok})
	}
	if l.broken {
		return nil
	}
	names, _ := l.named(list, "interface", l.endpoints, func(v val[string]) bool {
		_, ok := l.linkAt(asEndpoint(v))
		return ok
	})
	var all []Endpoint
	for _, name := range names {
		e, _ := endpoint(name)
		all = append(all, e)
	}
	return all
}
