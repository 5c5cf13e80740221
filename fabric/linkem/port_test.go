package linkem

import (
	"fmt"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
)

// To open an interface costs as much beside hundreds of others as alone. A lab of
// thousands of links has all their middles in one namespace, where to have the kernel
// list them for each link once took half a minute. Allocations count what such a list
// takes: three for every interface, at least.
func TestOpeningAmongManyInterfaces(t *testing.T) {
	if os.Getenv(roleEnv) != roleTests {
		t.Skip("needs a network namespace")
	}
	pair := func(i int) {
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: fmt.Sprintf("many%db", i)}
		veth.Name = fmt.Sprintf("many%da", i)
		must(t, netlink.LinkAdd(veth))
		t.Cleanup(func() { must(t, netlink.LinkDel(veth)) })
	}
	open := func() float64 {
		return testing.AllocsPerRun(5, func() {
			p, err := openPort("many0a", "")
			must(t, err)
			p.close()
		})
	}
	pair(0)
	alone := open()
	for i := range 100 {
		pair(1 + i)
	}
	if among := open(); among > alone {
		t.Errorf("%v allocations among 202 interfaces, %v among 2", among, alone)
	}
}

// Idle lines keep no histogram, of which an engine may have thousands.
func TestIdleHistogram(t *testing.T) {
	var h histogram
	if d := h.distribution(); h.pages != nil || d != (Distribution{}) || h.bins(&d) != nil {
		t.Errorf("%+v, %d pages", d, len(h.pages))
	}
}
