package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/ndklab/ndklab/internal/node/rtnl"
	"golang.org/x/sys/unix"
)

// MakeEnd makes the veth pair of one end of a link, as Make does for both: again,
// where RemoveEnd has removed it. ends are those that Make was given, this one
// perhaps in another namespace.
func (n *Network) MakeEnd(link, end, mtu int, ends [2]End) error {
	var b rtnl.Batch
	done, err := addEnd(&b, link, end, mtu, ends[end])
	if err != nil {
		return err
	}
	defer done()
	if _, err := n.do(&b); err != nil {
		return noRedirect(err)
	}
	return n.finish(link, end, ends)
}

// addEnd asks for what each end of a link has: perEnd requests. done is called when they have been made.
func addEnd(b *rtnl.Batch, link, end, mtu int, e End) (done func(), err error) {
	var network *os.File
	if e.Bridge == nil && !e.Stub && e.Outside == nil {
		if network, err = e.Network(); err != nil {
			return nil, fmt.Errorf("interface %s: %w", e.Interface, err)
		}
	}
	addPair(b, link, end, mtu, e, network)
	addQdiscs(b, link, end)
	return func() { network.Close() }, nil // of nil Close does nothing
}

// perEnd is the number of requests that addEnd adds, of which the first is for the pair.
const perEnd = 3

// finish does to an end that has just been made what only some need.
func (n *Network) finish(link, end int, ends [2]End) error {
	e := ends[end]
	if e.Bridge != nil {
		if err := n.enslave(link, end, e.Bridge, e.Wire || ends[1-end].Outside != nil); err != nil {
			return err
		}
	}
	if e.Outside != nil {
		if err := CompleteChecksums(Middle(link, end)); err != nil {
			return fmt.Errorf("%s: %w", Middle(link, end), err)
		}
	}
	return nil
}

// RemoveEnd deletes the veth pair of one end of a link, in the node and in the
// middle. It is no error if the pair has vanished with its node.
func (n *Network) RemoveEnd(link, end int) error {
	err := n.handle.LinkDel(middle(link, end))
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", Middle(link, end), err)
	}
	return nil
}
