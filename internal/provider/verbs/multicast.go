package verbs

import (
	"net/netip"
	"slices"
	"syscall"
)

// Attach has the queue pair, which is one of datagrams, receive what is sent to a multicast group
// (ibv_attach_mcast(3)), whatever of its own it sends there. A GID of RoCEv2 is the group's address.
func (qp *QP) Attach(group netip.Addr) error {
	qp.attaching.Lock()
	defer qp.attaching.Unlock()
	switch {
	case qp.config.Type != UD, !group.IsMulticast():
		return syscall.EINVAL
	case slices.Contains(qp.groups, group):
		return nil
	}
	if err := qp.pd.context.transport.Attach(group, qp.pair); err != nil {
		return err
	}
	qp.groups = append(qp.groups, group)
	return nil
}

// Detach ends what Attach began: EINVAL if the queue pair is not attached to the group.
func (qp *QP) Detach(group netip.Addr) error {
	qp.attaching.Lock()
	defer qp.attaching.Unlock()
	i := slices.Index(qp.groups, group)
	if i < 0 {
		return syscall.EINVAL
	}
	qp.groups = slices.Delete(qp.groups, i, i+1)
	qp.pd.context.transport.Detach(group, qp.pair)
	return nil
}

// detachAll detaches the queue pair from every group.
func (qp *QP) detachAll() {
	qp.attaching.Lock()
	defer qp.attaching.Unlock()
	for _, group := range qp.groups {
		qp.pd.context.transport.Detach(group, qp.pair)
	}
	qp.groups = nil
}
