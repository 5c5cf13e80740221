package link

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// MakeEnd makes the veth pair of one end of a link, as Make does for both: again,
// where RemoveEnd has removed it. ends are those that Make was given, this one
// perhaps in another namespace.
func (n *Network) MakeEnd(link, end, mtu int, ends [2]End) error {
	e := ends[end]
	if err := n.makePair(link, end, mtu, e); err != nil {
		return fmt.Errorf("veth %s to %s: %w", Middle(link, end), e.Interface, err)
	}
	if err := n.addQdiscs(link, end); err != nil {
		return fmt.Errorf("%s: %w", Middle(link, end), err)
	}
	if e.Bridge != nil {
		if err := n.enslave(link, end, e.Bridge, e.Wire || ends[1-end].Outside != nil); err != nil {
			return err
		}
	}
	if e.Outside != nil {
		if err := completeChecksums(Middle(link, end)); err != nil {
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
