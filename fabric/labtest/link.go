package labtest

import (
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A Link is a link of a lab.
type Link struct {
	lab      *Lab
	endpoint string
}

// Link is the link that ends at node:interface.
func (l *Lab) Link(endpoint string) *Link {
	l.t.Helper()
	if known := lab.NamesOf(l.topo).Interfaces; !slices.Contains(known, endpoint) {
		l.t.Fatalf("lab %s: no link has the endpoint %q, but %s", l.topo.Name, endpoint, strings.Join(known, ", "))
	}
	return &Link{l, endpoint}
}

// Set changes what the link does to packets in both directions. Settings that are not
// named stay; a value of none takes a setting away.
func (k *Link) Set(settings ...Setting) {
	k.lab.t.Helper()
	k.set("", settings)
}

// SetFrom is Set for the direction that a node sends in.
func (k *Link) SetFrom(node string, settings ...Setting) {
	k.lab.t.Helper()
	k.set(node, settings)
}

func (k *Link) set(from string, settings []Setting) {
	k.lab.t.Helper()
	c, err := change(settings)
	k.lab.must(err)
	k.lab.must(k.lab.lab.Links.Set(k.lab.ctx, k.endpoint, from, c))
}

// Reset gives the link the settings of the topology again. A link that is down stays
// down.
func (k *Link) Reset() {
	k.lab.t.Helper()
	k.lab.must(k.lab.lab.Links.Reset(k.lab.ctx, k.endpoint, ""))
}

// Cut has nothing arrive any more at either end, though both keep the carrier.
func (k *Link) Cut() {
	k.lab.t.Helper()
	k.set("", []Setting{{"cut", "true"}})
}

// Heal ends a Cut.
func (k *Link) Heal() {
	k.lab.t.Helper()
	k.set("", []Setting{{"cut", "none"}})
}

// Down takes the link down, as if its cable were pulled: both ends lose the carrier, and
// packets on their way are lost.
func (k *Link) Down() {
	k.lab.t.Helper()
	k.lab.must(k.lab.lab.Links.Down(k.lab.ctx, k.endpoint))
}

// Up brings the link up again, whatever took it down.
func (k *Link) Up() {
	k.lab.t.Helper()
	k.lab.must(k.lab.lab.Links.Up(k.lab.ctx, k.endpoint))
}

// Report returns the settings of the link and what it has done so far.
func (k *Link) Report() report.Link {
	k.lab.t.Helper()
	links, err := k.lab.lab.Links.Inspect(k.lab.ctx, k.endpoint)
	k.lab.must(err)
	return links[0]
}

// Partition takes down every link between nodes of different sets, in the place of an
// earlier partition. Nodes in no set form one more. It returns an endpoint of each link
// that is down because of it.
func (l *Lab) Partition(sets ...[]string) []string {
	l.t.Helper()
	links, err := l.lab.Links.Partition(l.ctx, sets...)
	l.must(err)
	return links
}

// Heal ends a partition. Links that were cut or taken down by themselves stay so.
func (l *Lab) Heal() {
	l.t.Helper()
	_, err := l.lab.Links.Heal(l.ctx)
	l.must(err)
}
