package ucm

// A state of an id follows from what the program has asked for (cma.c of Linux). Resolving takes no time here, so that
// there are no states of waiting for it.
type state uint8

const (
	idle state = iota
	bound
	addressResolved
	routeResolved
	connecting // or connected, or refused
	disconnected
	listening
)

// An action of the program takes an id to another state.
type action uint8

const (
	doBind action = iota
	doResolveAddress
	doResolveRoute
	doConnect
	doListen
	doDisconnect
)

var transitions = map[state]map[action]state{
	idle:            {doBind: bound},
	bound:           {doResolveAddress: addressResolved, doListen: listening},
	addressResolved: {doResolveRoute: routeResolved},
	routeResolved:   {doConnect: connecting},
	connecting:      {doDisconnect: disconnected},
}

// after returns the state that an action leads to; false where it is out of place.
func (s state) after(a action) (state, bool) {
	next, ok := transitions[s][a]
	return next, ok
}

// A handshake is the progress of an id's connection, as far as the attributes of its queue pair depend on it.
type handshake uint8

const (
	none      handshake = iota
	asked               // we sent REQ
	replied             // we have the REP
	requested           // we have the REQ
	accepted            // we sent REP
	established
	over
)

// enter takes an id's handshake on, and has the device count its connection. The manager's lock is held.
func (i *id) enter(h handshake) {
	was := i.handshake
	switch i.handshake = h; {
	case h == established:
		i.service.config.Device.CountConnection(was == replied)
	case was == established:
		i.service.config.Device.CountDisconnection()
	}
}

// open reports whether there is a connection, or the beginning of one.
func (h handshake) open() bool { return h != none && h != over }

// paired reports whether both ends' queue pairs may be known.
func (h handshake) paired() bool { return h >= replied && h != over }
