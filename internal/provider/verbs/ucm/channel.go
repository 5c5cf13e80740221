package ucm

import (
	"maps"
	"slices"
	"syscall"
)

// A Channel is an event channel: an open file of /dev/infiniband/rdma_cm.
type Channel struct {
	service     *Service
	descriptor  uint32 // that the program has it by
	announcer   Announcer
	events      []*event // that were not taken yet
	unannounced int      // of these, the last ones, that are not announced
	closed      bool
}

// An Announcer has the program's descriptor be readable for as long as there are events: it is a socket with a
// datagram for each, which is received before GET_EVENT is called. Its methods neither block nor call the service.
type Announcer interface {
	Announce() bool // reports whether there was room
	TakeBack()      // one, unless GET_EVENT is about to be called for it
}

// Open makes a channel that the program has by a descriptor, as MIGRATE_ID names it. GET_EVENT is EAGAIN if the
// event went after its announcement was received: with its id, or to another channel.
func (s *Service) Open(descriptor uint32, a Announcer) *Channel {
	s.manager.Lock()
	defer s.manager.Unlock()
	c := &Channel{service: s, descriptor: descriptor, announcer: a}
	s.channels[descriptor] = c
	return c
}

// Close destroys what is left of the channel's ids.
func (c *Channel) Close() {
	s := c.service
	s.manager.Lock()
	defer s.manager.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	for _, number := range slices.Sorted(maps.Keys(s.ids)) {
		if i := s.ids[number]; i != nil && i.channel == c {
			i.destroy()
		}
	}
	if s.channels[c.descriptor] == c {
		delete(s.channels, c.descriptor)
	}
	s.progress()
}

// A request is a command, without its header, on a channel. The manager's lock is held while it is carried out.
type request struct {
	channel *Channel
	body    []byte
	out     int // bytes of a response that there is room for
}

var commands = [commandCount]func(request) error{
	cmdCreateID: request.createID, cmdDestroyID: request.destroyID,
	cmdBindIP: request.bindIP, cmdBind: request.bind,
	cmdResolveIP: request.resolveIP, cmdResolveAddr: request.resolveAddr, cmdResolveRoute: request.resolveRoute,
	cmdQueryRoute: request.queryRoute, cmdQuery: request.query, cmdInitQPAttr: request.initQPAttr,
	cmdConnect: request.connect, cmdListen: request.listen, cmdAccept: request.accept,
	cmdReject: request.reject, cmdDisconnect: request.disconnect, cmdNotify: request.notify,
	cmdGetEvent: request.getEvent, cmdSetOption: request.setOption, cmdMigrateID: request.migrateID,
	cmdJoinIPMulticast: request.joinIPMulticast, cmdJoinMulticast: request.joinMulticast,
	cmdLeaveMulticast: request.leaveMulticast,
}

// Command does what a command asks for and returns its length, as write(2) on the file would. The error is a
// syscall.Errno.
func (c *Channel) Command(command []byte) (n int, err error) {
	h, err := decoded[header](command)
	switch {
	case err != nil:
		return 0, err
	case h.Command >= commandCount, headerSize+int(h.In) > len(command):
		return 0, syscall.EINVAL
	case commands[h.Command] == nil:
		return 0, syscall.ENOSYS
	}
	c.service.manager.Lock()
	defer c.service.manager.Unlock()
	if c.closed {
		return 0, syscall.EBADF
	}
	r := request{channel: c, body: command[headerSize:][:h.In], out: int(h.Out)}
	if err := commands[h.Command](r); err != nil {
		return 0, err
	}
	c.service.progress()
	return len(command), nil
}

// respond writes a response, as much of it as there is room for, which is least at least.
func (r request) respond(address uint64, least int, v any) error {
	b := encoded(v)
	if r.out < least {
		return syscall.ENOSPC
	}
	if r.channel.service.config.Memory.Write(address, b[:min(r.out, len(b))]) != nil {
		return syscall.EFAULT
	}
	return nil
}

// find returns the channel's id with a number.
func (c *Channel) find(number uint32) (*id, error) {
	i := c.service.ids[number]
	switch {
	case i == nil:
		return nil, syscall.ENOENT
	case i.channel != c:
		return nil, syscall.EINVAL
	}
	return i, nil
}
