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
	ring := make([]ResultEx, depth) // not under the lock: completions wait for that
	if status := cq.moveTo(ring); status != StatusSuccess {
		return status
	}
	return m.settle(&cq.object, completion, context)
}

// moveTo moves the entries to another ring.
func (cq *CQ) moveTo(ring []ResultEx) Status {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case cq.failure != StatusSuccess:
		return StatusInvalidDeviceState
	case cq.count > len(ring):
		return StatusBufferOverflow
	}
	last := min(cq.first+cq.count, len(cq.ring))
	n := copy(ring, cq.ring[cq.first:last])
	copy(ring[n:], cq.ring[:cq.count-n])
	cq.ring, cq.first = ring, 0
	cq.moderate() // a queue that is full now waits no longer
	return StatusSuccess
}
