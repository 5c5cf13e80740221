package ucm

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A multicast is an id's membership in a group. Its GID is the group's address. It tells the program how to send to
// the group; the device receives what is sent there for the queue pairs that are attached to the group.
type multicast struct {
	id       *id
	number   uint32
	uid      uint64
	reported uint32 // events that the program has taken
	group    netip.Addr
}

// multicastQPN is the destination of datagrams to a group (IBTA Vol. 1, 10.5).
const multicastQPN = 0xFFFFFF

func (r request) joinIPMulticast() error {
	cmd, err := decoded[joinIPMulticast](r.body)
	if err != nil {
		return err
	}
	return r.joinGroup(cmd.Response, cmd.UID, cmd.ID, cmd.Address[:], joinFullMember)
}

func (r request) joinMulticast() error {
	cmd, err := decoded[joinMulticast](r.body)
	if err != nil {
		return err
	}
	if cmd.Size == 0 || int(cmd.Size) != sizeOf(cmd.Address[:]) {
		return syscall.EINVAL
	}
	return r.joinGroup(cmd.Response, cmd.UID, cmd.ID, cmd.Address[:], cmd.Flags)
}

// joinGroup makes an id a member of a group, and tells it the address handle of that.
func (r request) joinGroup(response, uid uint64, number uint32, sockaddr []byte, flags uint16) error {
	if r.out < 4 {
		return syscall.ENOSPC
	}
	i, err := r.channel.find(number)
	if err != nil {
		return err
	}
	group, err := addressIn(sockaddr)
	switch {
	case err != nil:
		return err
	case flags > joinSendOnly, !group.Addr().IsMulticast(), !i.datagrams(), !i.hasDevice(),
		i.state != bound && i.state != addressResolved, group.Addr().Is4() != i.local.Addr().Is4():
		return syscall.EINVAL
	}
	s := r.channel.service
	g := &multicast{id: i, number: s.number(), uid: uid, group: group.Addr()}
	s.groups[g.number] = g
	i.groups = append(i.groups, g)
	if err := r.respond(response, 4, idResponse{g.number}); err != nil {
		g.leave()
		return err
	}
	handle := i.addressHandle()
	handle.DGID, handle.FlowLabel = gidOf(g.group), 0
	told := newEvent(i, g.uid, g.number, eventMulticastJoin, 0, &udParam{QPN: multicastQPN, QKey: mad.DatagramQKey, AH: handle})
	told.group = g
	r.channel.push(told)
	return nil
}

func (r request) leaveMulticast() error {
	cmd, err := decoded[destroyID](r.body)
	if err != nil {
		return err
	}
	if r.out < 4 {
		return syscall.ENOSPC
	}
	g := r.channel.service.groups[cmd.ID]
	switch {
	case g == nil:
		return syscall.ENOENT
	case g.id.channel != r.channel:
		return syscall.EINVAL
	}
	g.leave()
	return r.respond(cmd.Response, 4, eventsResponse{g.reported})
}

// leave ends a membership and drops its events.
func (g *multicast) leave() {
	delete(g.id.service.groups, g.number)
	g.id.groups = slices.DeleteFunc(g.id.groups, func(o *multicast) bool { return o == g })
	g.id.channel.remove(func(e *event) bool { return e.group == g })
}
