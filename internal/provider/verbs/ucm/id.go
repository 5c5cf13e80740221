package ucm

import (
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Port spaces (enum rdma_ucm_port_space).
const (
	spaceIPoIB = 0x0002
	spaceTCP   = 0x0106
	spaceUDP   = 0x0111
	spaceIB    = 0x013F
)

// An id is the program's rdma_cm_id.
type id struct {
	service  *Service
	channel  *Channel
	number   uint32
	uid      uint64 // the program's name for it; 0 before a request is accepted
	reported uint32 // events that the program has taken

	state         state
	space         uint16
	local, remote netip.AddrPort // invalid before they are bound and resolved
	options       options

	// Of the port that it is bound to: one for each address of the device that it stands for.
	endpoints []*gsi.Endpoint
	backlog   int // requests that may still be delivered before the program takes some

	// The connection.
	connection cm.ID
	handshake  handshake
	ownPSN     uint32 // of the first request that we receive
	ownQPN     uint32 // that the program accepted with
	agreed     agreement
	groups     []*multicast
}

// options are set by SET_OPTION.
type options struct {
	service       uint8 // type of service
	reuse         bool
	familyOnly    bool
	familyOnlySet bool
	ackTimeout    mad.Timeout
	ackTimeoutSet bool
}

// An agreement has what the two ends of a connection told each other, as this end's queue pair uses it.
type agreement struct {
	remoteQPN, sendPSN uint32
	mtu                uint8 // code
	responderResources uint8
	initiatorDepth     uint8
	retryCount         uint8
	rnrRetryCount      uint8
	ackTimeout         mad.Timeout
}

// newID makes an id in the space that a command or a listener names.
func (c *Channel) newID(uid uint64, space uint16) *id {
	s := c.service
	i := &id{service: s, channel: c, number: s.number(), uid: uid, space: space, ownPSN: s.config.Rand.Uint32() & roce.PSNMask}
	s.ids[i.number] = i
	return i
}

// datagrams reports whether the id is of a space of unreliable datagrams.
func (i *id) datagrams() bool { return i.space == spaceUDP }

// hasDevice reports whether the id is bound to one of the device's addresses.
func (i *id) hasDevice() bool { return i.local.IsValid() && !isAny(i.local.Addr()) }

// step takes an id to the state after an action: EINVAL if the action is out of place.
func (i *id) step(a action) error {
	next, ok := i.state.after(a)
	if !ok {
		return syscall.EINVAL
	}
	i.state = next
	return nil
}

func (r request) createID() error {
	cmd, err := decoded[createID](r.body)
	if err != nil {
		return err
	}
	switch cmd.PortSpace {
	case spaceTCP, spaceUDP, spaceIB:
	case spaceIPoIB:
		return syscall.EOPNOTSUPP
	default:
		return syscall.EINVAL
	}
	i := r.channel.newID(cmd.UID, cmd.PortSpace)
	if err := r.respond(cmd.Response, 4, idResponse{i.number}); err != nil {
		delete(r.channel.service.ids, i.number)
		return err
	}
	return nil
}

func (r request) destroyID() error {
	cmd, err := decoded[destroyID](r.body)
	if err != nil {
		return err
	}
	if r.out < 4 {
		return syscall.ENOSPC
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	i.destroy()
	return r.respond(cmd.Response, 4, eventsResponse{i.reported})
}

// destroy ends what an id has begun, and drops its events. Requests to a listener that nobody has taken are refused.
func (i *id) destroy() {
	delete(i.service.ids, i.number)
	for _, e := range i.channel.remove(func(e *event) bool { return e.id == i }) {
		if e.request != nil {
			e.request.destroy()
		}
	}
	for len(i.groups) > 0 {
		i.groups[0].leave()
	}
	i.endConnection()
	i.unbind()
}

// endConnection ends whatever there is of a connection.
func (i *id) endConnection() {
	if i.handshake == none {
		return
	}
	i.service.manager.CM.Abandon(i.service.config.Device.Clock().Now(), i.connection)
	i.service.manager.Leave(i.connection)
	i.service.forgetQPN(i)
	i.enter(over)
}

// migrateID takes an id over from another channel, with the events that were not taken yet.
func (r request) migrateID() error {
	cmd, err := decoded[migrateID](r.body)
	if err != nil {
		return err
	}
	if r.out < 4 {
		return syscall.ENOSPC
	}
	from := r.channel.service.channels[cmd.Descriptor]
	if from == nil {
		return syscall.ENOENT
	}
	i, err := from.find(cmd.ID)
	if err != nil {
		return err
	}
	if from != r.channel {
		i.channel = r.channel
		for _, e := range from.remove(func(e *event) bool { return e.id == i }) {
			if e.request != nil {
				e.request.channel = r.channel
			}
			r.channel.push(e)
		}
	}
	return r.respond(cmd.Response, 4, eventsResponse{i.reported})
}
