package provider

// What a DisconnectEventEx gives as the reason.
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
