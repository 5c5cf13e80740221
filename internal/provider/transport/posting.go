package transport

import "math"

// This file is about when what a consumer posts is sent: at once, or, if it does not wait for each request, when it polls,
// so that a few packets go together, at the price of one.

const (
	// pipelined packets in flight show that a consumer posts without waiting for each, and at most gathered ones wait to be
	// sent together.
	pipelined   = 8
	maxGathered = 32
)

// ProgressSoon is ProgressAfterPost, or nothing if the consumer polls, and does not wait for what it has posted: then
// FlushPosts, which is called as it polls, sends a few packets together, at the price of one.
func (c *Channel) ProgressSoon() {
	c.postCount.polled(c.device.polls.Load())
	c.postCount.posted(c.QP.Posted())
	if !c.pipelining() || c.QP.Unsent() >= maxGathered {
		c.ProgressAfterPost()
		return
	}
	c.queueFlush()
	c.model.Watch(true)
}

// pipelining reports whether the consumer polls, and does not wait for what it has posted: a lot of that is in flight, or
// some, and a lot was posted between two polls. Something is in flight in any case, so that who does not poll again, but
// looks at its memory for what a peer writes there, waits no longer for what was put off than for its acknowledgement.
func (c *Channel) pipelining() bool {
	inFlight := c.QP.InFlight()
	return c.device.polled.Load() && (inFlight >= pipelined || inFlight > 0 && c.postCount.last >= pipelined)
}

// A postCount counts what a consumer posts between two polls. The channel's lock guards it.
type postCount struct {
	posts int64  // requests that had ever been posted when they were last counted
	polls uint64 // of the device's consumers, likewise
	since int64  // requests that were counted since the last of these polls
	last  int64  // requests between the polls before, unless there were none
}

// posted counts requests, given how many were ever posted.
func (b *postCount) posted(posts int64) {
	b.since += posts - b.posts
	b.posts = posts
}

// polled begins a new count if the consumers have polled since, given how often they ever did.
func (b *postCount) polled(polls uint64) {
	if polls != b.polls && b.since > 0 {
		b.last, b.since = b.since, 0
	}
	b.polls = polls
}

// queueFlush queues the channel for FlushPosts.
func (c *Channel) queueFlush() {
	if c.posted {
		return
	}
	c.posted = true
	d := c.device
	d.postedMu.Lock()
	*d.posted.Add(math.MaxInt) = c
	d.anyPosted.Store(true)
	d.postedMu.Unlock()
}

// SetPolled says whether a consumer polls, and so will call FlushPosts. When it no longer does, what waits is sent.
func (d *Device) SetPolled(polled bool) {
	if d.polled.Swap(polled) && !polled {
		d.FlushPosts()
	}
}

// FlushPosts sends what ProgressSoon has put off. No lock of a channel is held.
func (d *Device) FlushPosts() {
	d.polls.Add(1)
	if !d.anyPosted.Load() {
		return
	}
	d.postedMu.Lock()
	n := d.posted.Len()
	d.postedMu.Unlock()
	for range n { // those that come back meanwhile wait for the next time
		c := d.nextPosted()
		if c == nil {
			return // somebody else has flushed it
		}
		c.flush()
	}
}

// nextPosted takes the channel that has waited longest for FlushPosts; nil if there is none.
func (d *Device) nextPosted() (c *Channel) {
	d.postedMu.Lock()
	defer d.postedMu.Unlock()
	if d.posted.Len() > 0 {
		c, *d.posted.Oldest() = *d.posted.Oldest(), nil
		d.posted.Drop()
	}
	d.anyPosted.Store(d.posted.Len() > 0)
	return c
}

// flush sends what was put off, and what the consumer has written meanwhile.
func (c *Channel) flush() {
	c.Lock()
	defer c.Unlock()
	c.posted = false
	watches := c.model.Watch(c.pipelining())
	c.postCount.posted(c.QP.Posted())
	c.postCount.polled(c.device.polls.Load())
	c.ProgressAfterPost()
	if watches {
		c.queueFlush()
	}
}
