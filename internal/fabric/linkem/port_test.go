package linkem

import (
	"fmt"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	// The count is of the whole process, where others may be on their last steps.
	if among := open(); among > alone+100 {
		t.Errorf("%v allocations among 202 interfaces, %v among 2", among, alone)
	}
}

// An engine that ends closes the sockets of all links that it has.
func TestClosePorts(t *testing.T) {
	all := linkTable{byName: map[string]*link{"gone": {state: detached}}}
	var peers []int
	for i := range 2 * closersAtOnce {
		k := &link{state: started}
		for end := range k.ports {
			var pipe [2]int
			must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
			k.ports[end] = &port{fd: pipe[0]}
			peers = append(peers, pipe[1])
		}
		all.byName[fmt.Sprint(i)] = k
	}
	all.close()
	for _, fd := range peers {
		if _, err := unix.Write(fd, []byte{0}); err != unix.EPIPE {
			t.Fatalf("the other end is still open: %v", err)
		}
		must(t, unix.Close(fd))
	}
}
