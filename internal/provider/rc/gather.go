package rc

// This file decides when short requests wait for others. A carrier takes many packets of one call for little more than the
// price of one. A consumer that posts whenever something completes posts as many requests as have just been acknowledged; those
// are acknowledged together again, so that batches never grow by themselves.

const (
	// gatherFrom is the least number of packets in flight for which requests wait. With fewer the peer would be done with them
	// before the next arrive.
	gatherFrom = 64
	// Requests wait until they have so many packets, or count so many bytes, which are one super-packet.
	gatherPackets = 60
	gatherBytes   = 15 * (4096 + PacketOverhead)
)

// Gather has Next leave requests of which nothing has been sent, until Gather is called again, if they are few beside those in
// flight. When half as many packets are posted as are in flight, they go: the acknowledgements of some, which go on arriving,
// are all that they wait for, as the last packet of a request asks for one. Where a round trip takes long, nothing waits; nor
// does it where a Pacer has each packet leave by itself.
func (q *QP) Gather() {
	r := &q.requester
	q.gathers = r.scoreboard == nil && r.window.pacer == nil && r.window.known <= hostDelay && r.queue.fewUnsent()
}

// fewUnsent reports whether what is posted and not sent is short and little beside what is in flight.
func (q *sendQueue) fewUnsent() bool {
	inFlight := q.max - q.una
	return inFlight >= gatherFrom && q.posted-q.max < min(inFlight/2, gatherPackets) &&
		!q.slot(q.cursor).op.isAnswered() && q.unsentCost() < gatherBytes
}
