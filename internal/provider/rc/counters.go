package rc

// Plus returns the sum of two QPs' counters.
func (c Counters) Plus(o Counters) Counters {
	c.Sent += o.Sent
	c.Received += o.Received
	c.Retransmitted += o.Retransmitted
	c.Spurious += o.Spurious
	c.Duplicates += o.Duplicates
	c.OutOfSequence += o.OutOfSequence
	c.NAKsSent += o.NAKsSent
	c.NAKsReceived += o.NAKsReceived
	c.RNRsSent += o.RNRsSent
	c.RNRsReceived += o.RNRsReceived
	c.Timeouts += o.Timeouts
	c.AcknowledgementsSent += o.AcknowledgementsSent
	c.AcknowledgementsReceived += o.AcknowledgementsReceived
	c.EarlyDropped += o.EarlyDropped
	c.BadLengths += o.BadLengths
	return c
}

// countSpurious counts a packet that the peer had when it was sent again.
func (c *Counters) countSpurious() {
	if c.Spurious < c.Retransmitted {
		c.Spurious++
	}
}
