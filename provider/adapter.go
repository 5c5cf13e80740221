package provider

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// OpenParameters say what a consumer asks of an adapter
// (NDIS_OPEN_NDK_ADAPTER_PARAMETERS).
type OpenParameters struct {
	// Version is the required major version and the lowest minor version that
	// will do; the adapter works with the highest that it has (ndkpi.md T18).
	Version Version
	// SwitchID and VPortID are without meaning here.
	SwitchID, VPortID uint32
}

// An Adapter is an open instance of a device: the parent of all that one
// consumer makes.
type Adapter struct {
	object
	// Dispatch is the functions as a table, which a consumer may replace by
	// others that call these. The provider does not read it.
	Dispatch AdapterDispatch
	miniport *Miniport
	cqs      objectSet[*CQ]
	srqs     objectSet[*SRQ]
}

// OpenAdapter opens an instance of the device. The status is StatusBadVersion
// for a version that the device does not have, StatusAdapterNotReady while NDK is
// disabled or not all instances from before it was disabled are closed, and
// StatusInsufficientResources when too many are open.
func (m *Miniport) OpenAdapter(parameters OpenParameters) (*Adapter, Status) {
	version, ok := negotiate(parameters.Version)
	if !ok {
		return nil, StatusBadVersion
	}
	s := &m.ndkState
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.enabled || !m.life.holdOpen() {
		return nil, StatusAdapterNotReady
	}
	defer m.life.release()
	if len(s.instances) == maxInstances {
		return nil, StatusInsufficientResources
	}
	a := &Adapter{miniport: m}
	a.Dispatch = a
	a.init(m.clock, ObjectTypeAdapter, &m.life)
	a.header.Version = version
	s.instances = append(s.instances, a)
	m.ledger.Note(sharing.Instances, 1)
	return a, StatusSuccess
}

// QueryAdapterInfo writes the adapter's limits to info. size holds the bytes
// that info has room for, as NDK_ADAPTER_INFO counts them, and then the bytes
// written; if they are too few, StatusBufferTooSmall and the bytes needed.
func (a *Adapter) QueryAdapterInfo(info *AdapterInfo, size *uint32) Status {
	if size == nil {
		return StatusInvalidParameter
	}
	given := *size
	*size = AdapterInfoSize
	if info == nil || given < AdapterInfoSize {
		return StatusBufferTooSmall
	}
	*info = a.Info()
	return StatusSuccess
}

// Info returns the adapter's limits, and the version that the instance works with.
func (a *Adapter) Info() AdapterInfo {
	info := a.miniport.info
	info.Version = a.Version()
	return info
}

// Close closes the instance. It blocks until every object made on it is closed
// and every callback has returned, and must not be called from a callback
// (NDK-LIFE-21).
func (a *Adapter) Close() {
	done := make(chan struct{})
	a.BeginClose(func() { close(done) })
	<-done
}

// BeginClose is Close that calls done instead of blocking: in virtual time
// nobody else would move the time that Close waits for.
func (a *Adapter) BeginClose(done func()) {
	ended := func(any) { done() }
	if a.close(nil, a.forget, ended, nil) != StatusPending {
		ended(nil)
	}
}

// forget takes the instance, which is closed, off the list of those open.
func (a *Adapter) forget() {
	s := &a.miniport.ndkState
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = slices.DeleteFunc(s.instances, func(x *Adapter) bool { return x == a })
	a.miniport.ledger.Give(sharing.Instances, 1)
	s.update()
}

// fail has all queues of the instance fail, and with them its queue pairs and
// their connections.
func (a *Adapter) fail() {
	for _, cq := range a.cqs.snapshot() {
		cq.fail(StatusInternalError)
	}
	for _, srq := range a.srqs.snapshot() {
		srq.fail(StatusInternalError)
	}
}
