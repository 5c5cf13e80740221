package provider

// Reasons that a DisconnectEventEx gives.
const (
	DisconnectReasonNone      uint32 = iota // none given
	DisconnectReasonPeer                    // the peer's consumer disconnected or closed its connector
	DisconnectReasonForgotten               // the peer does not know the connection any more: it has started anew
	DisconnectReasonTimeout                 // the peer no longer answers
	DisconnectReasonError                   // a request failed, ours or the peer's, or a completion queue
)

// withReason returns the event in the form in which a connector keeps it.
func (e DisconnectEvent) withReason() DisconnectEventEx {
	if e == nil {
		return nil
	}
	return func(context any, _ uint32) { e(context) }
}

// A disconnectCallback is the consumer's event for the end of an established connection. The manager's lock guards it.
type disconnectCallback struct {
	event   DisconnectEventEx // nil tells nobody
	context any
}

// call calls the consumer, once. The manager's lock is held.
func (d disconnectCallback) call(c *Connector, reason uint32) {
	if d.event == nil || !c.holdOpen() {
		return
	}
	c.callbacks.add(func() {
		d.event(d.context, reason)
		c.release()
	}, nil)
}
