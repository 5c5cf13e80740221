package transport

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/provider/ring"
)

// This file decides when requests are sent that a consumer posts: at once or, if it does not wait for each, when it polls.
// Then a few packets go together, at the price of one.

const (
	// pipelined packets in flight show that a consumer posts without waiting for each, and at most gathered ones wait to be
	// sent together.
	pipelined   = 8
	maxGathered = 32
)

// ProgressSoon does what ProgressAfterPost does, unless the consumer polls and does not wait for what it has posted: then
// it leaves that to FlushPosts, which is called as the consumer polls.
func (c *Channel) ProgressSoon() {
	c.postCount.polled(c.device.polls.Load())
	queue := c.QP.SendQueue()
	c.postCount.posted(queue.Posted)
	if !c.pipelining() || queue.Unsent >= maxGathered {
		c.ProgressAfterPost()
		return
	}
	c.queueFlush()
	c.model.Watch(true)
}

// pipelining reports whether the consumer polls, and does not wait for what it has posted: a lot of that is in flight, or
// some, and a lot was posted between two polls. Something is in flight in any case. So a consumer that does not poll again,
// but looks at its memory for what a peer writes there, waits no longer for what was put off than for its acknowledgement.
func (c *Channel) pipelining() bool {
	inFlight := c.QP.SendQueue().InFlight
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
	c.device.posts.add(c)
}

// A postQueue has the channels that wait for FlushPosts.
type postQueue struct {
	some     atomic.Bool // there are channels; to be read without the lock
	mu       sync.Mutex  // guards what follows
	channels ring.Ring[*Channel]
}

// add adds a channel.
func (q *postQueue) add(c *Channel) {
	q.mu.Lock()
	*q.channels.Add(math.MaxInt) = c
	q.some.Store(true)
	q.mu.Unlock()
}

// next takes the channel that has waited longest; nil if there is none.
func (q *postQueue) next() (c *Channel) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.channels.Len() > 0 {
		c, *q.channels.Oldest() = *q.channels.Oldest(), nil
		q.channels.Drop()
	}
	q.some.Store(q.channels.Len() > 0)
	return c
}

// count returns the number of channels.
func (q *postQueue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.channels.Len()
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
	if !d.posts.some.Load() {
		return
	}
	for range d.posts.count() { // those that come back meanwhile wait for the next time
		c := d.posts.next()
		if c == nil {
			return // somebody else has flushed it
		}
		c.flush()
	}
}

// flush sends what was put off, and what the consumer has written meanwhile.
func (c *Channel) flush() {
	c.Lock()
	defer c.Unlock()
	c.posted = false
	watches := c.model.Watch(c.pipelining())
	c.postCount.posted(c.QP.SendQueue().Posted)
	c.postCount.polled(c.device.polls.Load())
	c.ProgressAfterPost()
	if watches {
		c.queueFlush()
	}
}
