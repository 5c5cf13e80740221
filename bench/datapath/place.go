package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// linkMTU is that of every link, bytes: a RoCE packet carries 4 KiB.
	linkMTU = 4200
	// iface is the interface of a place.
	iface = "eth0"
)

// A place is a network namespace with one interface. It has no name: it ends with the
// last process that is in it or has it open, which this one is, so that nothing of
// it stays however this process ends.
type place struct {
	ns      netns.NsHandle
	address netip.Addr
}

// newPlace makes the place of a number, as yet without its interface.
func newPlace(number int) (*place, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	return &place{ns, netip.AddrFrom4([4]byte{10, 0, 0, byte(number + 1)})}, nil
}

// newPair makes two places joined by a veth pair.
func newPair() (pair [2]*place, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closePlaces(pair[:]...))
		}
	}()
	for i := range pair {
		if pair[i], err = newPlace(i); err != nil {
			return pair, err
		}
	}
	if err := joinNamespaces(pair[0].ns, iface, pair[1].ns, iface); err != nil {
		return pair, err
	}
	for _, p := range pair {
		if err := p.up(); err != nil {
			return pair, err
		}
	}
	return pair, nil
}

// newStar makes n places joined by a bridge, which is in a network namespace of its
// own: the first of the handles that closePlaces is to close.
func newStar(n int) (hub *place, places []*place, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closePlaces(append(places, hub)...))
		}
	}()
	if hub, err = newPlace(0); err != nil {
		return nil, nil, err
	}
	handle, err := netlink.NewHandleAt(hub.ns)
	if err != nil {
		return hub, nil, err
	}
	defer handle.Close()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: linkMTU}}
	if err := handle.LinkAdd(bridge); err != nil {
		return hub, nil, fmt.Errorf("bridge: %w", err)
	}
	if err := handle.LinkSetUp(bridge); err != nil {
		return hub, nil, fmt.Errorf("bridge: %w", err)
	}
	for i := range n {
		p, err := newPlace(i)
		if err != nil {
			return hub, places, err
		}
		places = append(places, p)
		name := fmt.Sprint("port", i)
		if err := joinNamespaces(hub.ns, name, p.ns, iface); err != nil {
			return hub, places, err
		}
		port, err := handle.LinkByName(name)
		if err != nil {
			return hub, places, err
		}
		if err := errors.Join(handle.LinkSetMaster(port, bridge), handle.LinkSetUp(port), p.up()); err != nil {
			return hub, places, fmt.Errorf("port of the bridge: %w", err)
		}
	}
	return hub, places, nil
}

func closePlaces(places ...*place) error {
	var err error
	for _, p := range places {
		if p != nil {
			err = errors.Join(err, p.ns.Close())
		}
	}
	return err
}

// newNamespace makes a network namespace without a name.
func newNamespace() (netns.NsHandle, error) {
	type made struct {
		ns  netns.NsHandle
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		result <- made{ns, err}
	}()
	r := <-result
	switch {
	case errors.Is(r.err, unix.EPERM):
		return r.ns, fmt.Errorf("make a network namespace: %w: it needs root of the machine or of a privileged container (CAP_SYS_ADMIN)", r.err)
	case r.err != nil:
		return r.ns, fmt.Errorf("make a network namespace: %w", r.err)
	}
	return r.ns, nil
}

// joinNamespaces makes a veth pair, with an interface in each of two namespaces.
func joinNamespaces(a netns.NsHandle, nameA string, b netns.NsHandle, nameB string) error {
	handle, err := netlink.NewHandleAt(a)
	if err != nil {
		return err
	}
	defer handle.Close()
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: nameA, MTU: linkMTU})
	veth.PeerName, veth.PeerNamespace, veth.PeerMTU = nameB, netlink.NsFd(b), linkMTU
	if err := handle.LinkAdd(veth); err != nil {
		return fmt.Errorf("make a veth pair: %w", err)
	}
	return nil
}

// up sets the place's interfaces up and gives it its address.
func (p *place) up() error {
	handle, err := netlink.NewHandleAt(p.ns)
	if err != nil {
		return err
	}
	defer handle.Close()
	for _, name := range []string{"lo", iface} {
		device, err := handle.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if name == iface {
			prefix := &net.IPNet{IP: p.address.AsSlice(), Mask: net.CIDRMask(24, 32)}
			if err := handle.AddrAdd(device, &netlink.Addr{IPNet: prefix}); err != nil {
				return fmt.Errorf("address %v: %w", p.address, err)
			}
		}
		if err := handle.LinkSetUp(device); err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
	}
	return nil
}

// checkRoot says what a user lacks who may not do what this program does.
func checkRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("making network namespaces and large socket buffers needs root: run this with sudo")
}
