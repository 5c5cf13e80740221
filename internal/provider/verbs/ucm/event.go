package ucm

import (
	"slices"
	"syscall"
)

// Events, by number (enum rdma_cm_event_type).
const (
	eventAddrResolved = iota
	eventAddrError
	eventRouteResolved
	eventRouteError
	eventConnectRequest
	eventConnectResponse
	eventConnectError
	eventUnreachable
	eventRejected
	eventEstablished
	eventDisconnected
	eventDeviceRemoval
	eventMulticastJoin
	eventMulticastError
	eventAddrChange
	eventTimewaitExit
)

// failure returns an errno as an event's status has it.
func failure(errno syscall.Errno) uint32 { return uint32(-int32(errno)) }

// An event waits in its channel to be taken.
type event struct {
	response eventResponse
	id       *id        // that it is told of: a listener's for a request
	request  *id        // that it brings
	group    *multicast // that it is about
}

// emit queues an event of an id. It drops those of an id that the program does not know yet: its connection ended before
// it was accepted, and accepting it fails.
func (i *id) emit(kind int, status uint32, param any) {
	if i.uid == 0 {
		return
	}
	i.channel.push(newEvent(i, i.uid, i.number, kind, status, param))
}

func newEvent(i *id, uid uint64, number uint32, kind int, status uint32, param any) *event {
	e := &event{response: eventResponse{UID: uid, ID: number, Event: uint32(kind), Status: status}, id: i}
	if param != nil {
		copy(e.response.Param[:], encoded(param))
	}
	return e
}

// push queues an event and announces it.
func (c *Channel) push(e *event) {
	c.events = append(c.events, e)
	c.unannounced++
	c.announce()
}

// announce announces events that are not announced yet, as far as there is room.
func (c *Channel) announce() {
	c.unannounced = min(c.unannounced, len(c.events))
	for c.unannounced > 0 && c.announcer.Announce() {
		c.unannounced--
	}
}

// remove takes the events out of the queue that are to be dropped, and returns them.
func (c *Channel) remove(drop func(*event) bool) (removed []*event) {
	announced := len(c.events) - c.unannounced
	c.events = slices.DeleteFunc(c.events, func(e *event) bool {
		if drop(e) {
			removed = append(removed, e)
			return true
		}
		return false
	})
	c.unannounced = max(0, len(c.events)-announced)
	for range announced - (len(c.events) - c.unannounced) {
		c.announcer.TakeBack()
	}
	return removed
}

// getEvent hands the oldest event to the program: EAGAIN if there is none. An event that cannot be handed over stays,
// and is announced again.
func (r request) getEvent() error {
	if len(r.channel.events) == 0 {
		return syscall.EAGAIN
	}
	r.channel.unannounced++ // the program has received an announcement
	defer r.channel.announce()
	cmd, err := decoded[getEvent](r.body)
	if err != nil {
		return err
	}
	e := r.channel.events[0]
	if err := r.respond(cmd.Response, eventLeast, &e.response); err != nil {
		return err
	}
	r.channel.events = r.channel.events[1:]
	r.channel.unannounced--
	e.id.reported++
	if e.group != nil {
		e.group.reported++
	}
	if e.request != nil {
		e.id.backlog++
	}
	return nil
}
