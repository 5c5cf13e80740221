package provider

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
	miniport *Miniport
	cqs      objectSet[*CQ]
	srqs     objectSet[*SRQ]
}

// OpenAdapter opens an instance of the device. The status is StatusBadVersion
// for a version that the device does not have.
func (m *Miniport) OpenAdapter(parameters OpenParameters) (*Adapter, Status) {
	v := parameters.Version
	if v.Major != InterfaceVersion.Major || v.Minor > InterfaceVersion.Minor {
		return nil, StatusBadVersion
	}
	a := &Adapter{miniport: m}
	a.init(m.clock, ObjectTypeAdapter, &m.life)
	return a, StatusSuccess
}

// QueryAdapterInfo writes the adapter's limits to info. size holds the bytes
// that info has room for, as NDK_ADAPTER_INFO counts them, and then the bytes
// written; if they are too few, StatusBufferTooSmall and the bytes needed.
func (a *Adapter) QueryAdapterInfo(info *AdapterInfo, size *uint32) Status {
	given := *size
	*size = AdapterInfoSize
	if info == nil || given < AdapterInfoSize {
		return StatusBufferTooSmall
	}
	*info = a.miniport.info
	return StatusSuccess
}

// Info is the adapter's limits.
func (a *Adapter) Info() AdapterInfo { return a.miniport.info }

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
	if a.close(nil, nil, ended, nil) != StatusPending {
		ended(nil)
	}
}
