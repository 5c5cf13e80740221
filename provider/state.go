package provider

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A NetEventCode says what a NetEvent is (ndkpi.md 2.10).
type NetEventCode int32

// The events.
const (
	NetEventNDKEnable  NetEventCode = 13
	NetEventNDKDisable NetEventCode = 14
)

// A NetEvent says that NDK has been enabled or disabled. Consumers close their
// instances when it is disabled, and may open new ones when it is enabled.
type NetEvent struct {
	Code NetEventCode
	// Done is closed when the event is over: for NetEventNDKDisable when the last
	// instance is closed, for NetEventNDKEnable at once. Not to be waited for in
	// the callback.
	Done <-chan struct{}
}

// ndkState decides whether NDK is enabled. NDK is enabled while the configuration
// allows it, it was not switched off, the device works, and no disabling is under
// way, which ends with the last instance that was open then.
type ndkState struct {
	failed atomic.Bool // changed with mu held

	mu          sync.Mutex // guards what follows; no other lock but an object's is taken inside
	allowed     bool       // by *NetworkDirect
	wanted      bool       // as set last
	enabled     bool
	disabled    chan struct{} // of the disable event that is not over; nil: there is none
	instances   []*Adapter    // that are open, oldest first
	subscribers []*subscriber
	events      callbacks
}

type subscriber struct{ event func(NetEvent) }

// maxInstances bounds the instances that may be open at once: many more than there
// are consumers, so that one that forgets to close is told before memory is
// exhausted.
const maxInstances = 4096

// update makes enabled what it ought to be and raises the event. mu is held.
func (s *ndkState) update() {
	if s.disabled != nil && len(s.instances) == 0 {
		close(s.disabled)
		s.disabled = nil
	}
	ought := s.allowed && s.wanted && !s.failed.Load()
	switch {
	case s.enabled && !ought:
		s.enabled = false
		s.disabled = make(chan struct{})
		s.raise(NetEvent{NetEventNDKDisable, s.disabled})
		s.update() // there may be no instance to wait for
	case !s.enabled && ought && s.disabled == nil:
		s.enabled = true
		over := make(chan struct{})
		close(over)
		s.raise(NetEvent{NetEventNDKEnable, over})
	}
}

// raise has the subscribers called, from another context than the one that
// changed the state, which may be a subscriber's (NDK-EN-05). mu is held.
func (s *ndkState) raise(e NetEvent) {
	s.events.add(func() {
		s.mu.Lock()
		subscribers := slices.Clone(s.subscribers)
		s.mu.Unlock()
		for _, to := range subscribers {
			s.mu.Lock()
			still := slices.Contains(s.subscribers, to)
			s.mu.Unlock()
			if still {
				to.event(e)
			}
		}
	}, nil)
}

// Subscribe has event called whenever NDK is enabled or disabled, one event after
// the other, from a goroutine of the device's. It may call anything but the Close
// of an Adapter or Miniport. After cancel no further event is begun.
// A nil event tells nobody.
func (s *ndkState) Subscribe(event func(NetEvent)) (cancel func()) {
	if event == nil {
		return func() {}
	}
	to := &subscriber{event}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(s.subscribers, to)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subscribers = slices.DeleteFunc(s.subscribers, func(x *subscriber) bool { return x == to })
	}
}

// SetState enables or disables NDK (OID_NDK_SET_STATE). Disabling does not wait
// for the open instances, which go on until they are closed; while there are any,
// enabling waits for them, though SetState does not. The status is
// StatusNotSupported if the configuration forbids to enable, and
// StatusAdapterNotReady if the device has failed and NDK will be enabled when it
// recovers. A call that changes nothing raises no event.
func (s *ndkState) SetState(enabled bool) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if enabled && !s.allowed {
		return StatusNotSupported
	}
	s.wanted = enabled
	s.update()
	if enabled && s.failed.Load() {
		return StatusAdapterNotReady
	}
	return StatusSuccess
}

// Fail has the device fail as if its hardware had failed, and is to be called when
// the carrier fails. Every CQ and SRQ fails with StatusInternalError, connections
// end, and NDK is disabled until Recover. Objects that were made before are of no
// more use but to be closed.
func (m *Miniport) Fail() {
	for _, a := range m.ndkState.fail() {
		a.fail()
	}
	m.abortAttempts()
}

// fail notes that the device has failed, and returns the instances that are open.
func (s *ndkState) fail() []*Adapter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed.Store(true)
	s.update()
	return slices.Clone(s.instances)
}

// isEnabled reports whether NDK is enabled.
func (s *ndkState) isEnabled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enabled
}

// Failed reports whether the device has failed and not recovered.
func (s *ndkState) Failed() bool { return s.failed.Load() }

// Recover ends what Fail began: NDK is enabled again once the instances that
// failed are closed, unless it was switched off.
func (s *ndkState) Recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed.Store(false)
	s.update()
}

// abortAttempts ends the connections that are being made.
func (m *Miniport) abortAttempts() {
	m.manager.Lock()
	defer m.manager.Unlock()
	now := m.clock.Now()
	for c := range m.connectors() {
		if c.state.attempting() {
			m.manager.CM.Abandon(now, c.id)
			status := c.abort(StatusConnectionAborted)
			c.leaveQP()
			c.complete(status)
		}
	}
	m.manager.Progress(now)
}
