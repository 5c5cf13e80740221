package provider

// Resize changes how many entries the queue holds. No entry is lost, nor does
// their order change, while completions arrive and are taken. It fails with
// StatusBufferOverflow, and changes nothing, if more entries are queued than
// depth (NDK-CQ-40), and with StatusNotSupported without AdapterCQResize.
func (cq *CQ) Resize(depth uint32, completion RequestCompletion, context any) Status {
	m := cq.adapter.miniport
	if m.info.AdapterFlags&AdapterCQResize == 0 {
		return StatusNotSupported
	}
	if depth == 0 || depth > m.info.MaxCqDepth {
		return StatusInvalidParameter
	}
	if status := cq.setDepth(int(depth)); status != StatusSuccess {
		return status
	}
	return m.completeRequest(&cq.object, completion, context)
}

func (cq *CQ) setDepth(depth int) Status {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case cq.failure != StatusSuccess:
		return StatusInvalidDeviceState
	case cq.count > depth:
		return StatusBufferOverflow
	}
	cq.depth = depth
	if len(cq.ring) > depth {
		cq.move(depth)
	}
	cq.moderate() // a queue that is full now waits no longer
	return StatusSuccess
}
