package topology

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/ndklab/ndklab/topology/filter"
	"gopkg.in/yaml.v3"
)

// The values of captures.
var (
	captureRing  = sized[uint64](sizes, 16<<10, 1<<40) // smaller files would hold little but their headers
	captureFiles = count[int](1, 10000)
	captureSnap  = count[int](MinSnaplen, 1<<18)
)

// MinSnaplen is how many bytes of a packet a capture records at least: the Ethernet
// header.
const MinSnaplen = 14

// ParseRingSize reads from how many bytes on a file of a ring is full, with its
// unit, such as 10MiB.
func ParseRingSize(text string) (uint64, error) { return captureRing(text) }

// defaultRingFiles is how many files of a ring stay.
const defaultRingFiles = 5

// captureFilter is a parser for a filter, which it leaves as it is.
func captureFilter(text string) (string, error) {
	_, err := filter.Parse(text)
	return text, err
}

// captureFile is a parser for a path.
func captureFile(text string) (string, error) {
	if text == "" || text == "-" || strings.HasSuffix(text, "/") {
		return "", errors.New("found " + quote(text) + ", expected the path of a file such as client.pcapng")
	}
	return text, nil
}

type captureMap struct {
	at         *yaml.Node
	link       val[Endpoint]
	interfaces []val[Endpoint]
	listed     val[bool] // interfaces is given
	file       val[string]
	filter     val[string]
	snaplen    val[int]
	size       val[uint64] // of a ring's files
	files      val[int]
}

func (r *reader) captureMap(n *yaml.Node) captureMap {
	m := captureMap{at: n}
	r.fields(n, "a capture",
		one(r, "link", &m.link, endpoint),
		field{"interfaces", func(n *yaml.Node) {
			m.listed.at = n
			list(r, "interfaces", &m.interfaces, func(n *yaml.Node) val[Endpoint] { return scalar(r, n, endpoint) }).read(n)
			if isNull(n) || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				r.valueError(n, "no interfaces, expected some such as [\"node-1:eth0\"]")
			}
		}},
		one(r, "file", &m.file, captureFile),
		one(r, "filter", &m.filter, captureFilter),
		one(r, "snaplen", &m.snaplen, captureSnap),
		field{"ring", func(n *yaml.Node) {
			r.fields(n, "a ring", one(r, "size", &m.size, captureRing), one(r, "files", &m.files, captureFiles))
			r.required(n, "ring", need("size", m.size))
		}},
	)
	r.required(n, "capture", need("file", m.file))
	r.exactlyOne(n, "capture", need("link", m.link), need("interfaces", m.listed))
	return m
}

// linkCapture is a link's own key: true, false, or the file.
func linkCapture(text string) (string, error) {
	if text == "true" || text == "false" {
		return text, nil
	}
	return captureFile(text)
}

// captures resolves the captures of the file: those of links, and those on their
// own.
func (r *reader) captures(lab string, links []linkMap, maps []captureMap, l *linked) []Capture {
	var captures []Capture
	taken := map[string]*yaml.Node{}
	add := func(at *yaml.Node, c Capture) {
		// The same file by another path is for the system to notice.
		if first := taken[filepath.Clean(c.File)]; first != nil {
			r.errorf(at, "a second capture to %s, expected another file (line %d has it)", quote(c.File), first.Line)
			return
		}
		taken[filepath.Clean(c.File)] = at
		captures = append(captures, c)
	}
	for i, m := range links {
		if !m.capture.ok || m.capture.is == "false" {
			continue
		}
		c := Capture{Interfaces: l.links[i].Endpoints[:], File: m.capture.is}
		if c.File == "true" {
			e := c.Interfaces[0]
			c.File = lab + "-" + e.Node + "-" + e.Interface + ".pcapng"
		}
		add(m.capture.at, c)
	}
	for _, m := range maps {
		c := Capture{File: m.file.is, Filter: m.filter.is, Snaplen: m.snaplen.is, RingSize: m.size.is}
		if m.size.ok {
			c.RingFiles = m.files.orElse(defaultRingFiles)
		}
		for _, e := range r.linksAt(m.link, l) {
			if i, ok := r.linkAt(e, l); ok {
				c.Interfaces = append(c.Interfaces, l.links[i].Endpoints[:]...)
			}
		}
		c.Interfaces = append(c.Interfaces, r.interfacesAt(m.interfaces, l)...)
		if m.file.ok {
			add(m.file.at, c)
		}
	}
	return captures
}

// interfacesAt is the endpoints that words stand for, each once.
func (r *reader) interfacesAt(words []val[Endpoint], l *linked) []Endpoint {
	var list []val[string]
	for _, w := range words {
		list = append(list, val[string]{w.at, w.is.String(), w.ok})
	}
	if l.broken {
		return nil
	}
	names, _ := r.named(list, "interface", l.names, func(v val[string]) bool {
		e, _ := endpoint(v.is)
		_, ok := r.linkAt(val[Endpoint]{v.at, e, v.ok}, l)
		return ok
	})
	var all []Endpoint
	for _, name := range names {
		e, _ := endpoint(name)
		all = append(all, e)
	}
	return all
}
