package transport

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider/clock"
)

// batchSize is the number of packets that are gathered before they are handed to the
// carrier, at most: four super-packets of 15 full-sized packets each (design: 64
// KiB is the most that one system call's segments may add up to).
const batchSize = 60

// A Model connects the queue pair's object model with its channel. Its methods are called with
// the channel's lock held.
type Model interface {
	// Sent says that nobody reads memory any more that packets were made of.
	Sent()
	// Settle takes completions, oldest first, which are lent. The state may be rc.Error.
	Settle(completions []rc.Completion)
	// Watch has the model post what its consumer has written to work queues of its own, and go on looking there if watch
	// says so: who writes more then need not tell anybody. It reports whether the model does; one without such queues
	// does not.
	Watch(watch bool) (watches bool)
	// Requested says that the peer's first request has arrived, if Connect asked to be told: it stands
	// in for a lost RTU (roce.md 11).
	Requested()
}

// A Channel is a queue pair of a reliable connection: the state machine and what drives it. The lock
// guards everything but what the table has, and what the model adds to it.
type Channel struct {
	Pair
	sync.Mutex
	QP *rc.QP // the state machine; Progress is to follow whatever may have changed it
	// earlier has what the state machines before Reset have counted; nil for none.
	earlier *rc.Counters

	device    *Device
	model     Model
	ackQueued atomic.Bool // among the device's Delivery, and not taken from there yet

	// firstPSN is that of the peer's first request, if it is to be reported to the model, which listening
	// says: others may be of an earlier connection with the same numbers.
	firstPSN  uint32
	flow      roce.Flow
	class     uint8 // see Peer
	listening bool
	remoteQPN uint32
	notifier  congestion.Notifier // of CNPs for the peer
	line      *lineQueue          // nil: packets are handed to the carrier at once
	// unacknowledged counts the bytes that came since an acknowledgement is put off.
	unacknowledged int32
	cnps           uint32    // that came from the peer
	delivery       *Delivery // that the packets are part of which are being handled; nil for none
	path           *path     // to the peer; nil before there is one
	roundTrip      int64     // that path had when Progress last began
	slow           int64     // that path was last told
	credit         int64     // bytes of the device's that it has
	turn           int64     // bytes of it that its turn in line has brought
	creditQueued   bool      // for more of it
	lineQueued     bool      // for the line
	hasTurn        bool      // on the line
	inTurn         bool      // what is gathered now has that turn
	halted         bool      // the peer has ended the connection
	posted         bool      // among the device's posted
	fragile        bool      // the memory may vanish that packets are made of
	continues      bool      // Progress was left before it had sent all, and goes on soon
	// Prompt has an acknowledgement that is owed go before what is posted. It is the model's.
	Prompt bool
	// acknowledgesLast has an acknowledgement that is held back go right behind what is posted.
	acknowledgesLast bool
	postCount        postCount

	timer   clock.Timer
	timerAt time.Duration // when the timer will run; 0: it is not pending
}

// Init makes c a channel of the device, which has no number before Add.
func (c *Channel) Init(d *Device, config rc.Config, model Model) {
	c.QP, c.device, c.model, c.fragile = rc.NewQP(config), d, model, config.Place != nil
	c.Owner = c
}

// Model returns the model that Init was given.
func (c *Channel) Model() Model { return c.model }

// A Peer says where a channel leads, and how.
type Peer struct {
	Local, Remote netip.Addr
	// Class is the traffic class that packets are to have instead of the device's; 0: that. Its ECN field means nothing.
	Class uint8
	// Announce has the model be told of the peer's first request.
	Announce bool
}

// Connect has the channel carry packets to and from a peer. The error is that of rc.QP.Connect; Credit is the device's.
func (c *Channel) Connect(peer Peer, agreed rc.Connection) error {
	d := c.device
	agreed.Credit = int(d.credit.size)
	d.congestion.pace(&agreed, peer.Local, float64(d.LineRate(peer.Local)), d.line != nil)
	if d.line != nil {
		agreed.Pacer.Line = (*lineOfChannel)(c)
	}
	c.setPeer(peer, agreed.RemoteQPN)
	c.listening, c.firstPSN = peer.Announce, agreed.ReceivePSN
	return c.QP.Connect(agreed)
}

// setPeer sends packets to a peer from now on.
func (c *Channel) setPeer(peer Peer, remoteQPN uint32) {
	d := c.device
	c.flow = roce.Flow{Local: peer.Local, Remote: peer.Remote}
	c.flow.SourcePort = d.Carrier.SourcePort(peer.Local, roce.FlowLabel(c.number, remoteQPN))
	c.class = roce.RequestedClass(peer.Class)
	c.remoteQPN, c.line = remoteQPN, d.lineAt(peer.Local, d.congestion.classOf(c.class, roce.Acknowledge))
	c.path = d.paths.find(peer.Remote)
}

// Redirect has a channel that is connected carry packets to and from other addresses of the same peer's.
func (c *Channel) Redirect(peer Peer, remoteQPN uint32) {
	c.path.heardBy.CompareAndSwap(c, nil)
	c.setPeer(peer, remoteQPN)
	c.slow = 0
}

// Reset makes the channel as new, with another state machine: what was posted is forgotten, and told nobody.
func (c *Channel) Reset(config rc.Config) {
	c.QP.Flush()
	counted := c.counters() // not to the retired ones, whose lock is taken before this channel's
	c.earlier = &counted
	c.settleCredit()
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.path != nil {
		c.path.heardBy.CompareAndSwap(c, nil)
	}
	c.QP, c.postCount, c.cnps = rc.NewQP(config), postCount{}, 0
	c.flow, c.path, c.roundTrip, c.slow = roce.Flow{}, nil, 0, 0
	c.listening, c.halted, c.timerAt = false, false, 0
}

// StopListening stops reporting the peer's first request to the model.
func (c *Channel) StopListening() { c.listening = false }

// Remote returns the peer's address; not valid before Connect.
func (c *Channel) Remote() netip.Addr { return c.flow.Remote }

// Delivery returns the one that the packets are part of that are being handled; nil for none.
func (c *Channel) Delivery() *Delivery { return c.delivery }

// Retire ends the channel, in rc.Error: its number is in use no longer, and what it counted is kept.
func (c *Channel) Retire() {
	c.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.path != nil {
		c.path.heardBy.CompareAndSwap(c, nil)
	}
	counted := c.counters() // the last: in Error it counts nothing
	c.Unlock()
	d := c.device
	d.retiring.Lock()
	defer d.retiring.Unlock()
	d.retired = d.retired.Plus(counted)
	d.Remove(&c.Pair)
}

// Counters returns the channel's counters.
func (c *Channel) Counters() rc.Counters {
	c.Lock()
	defer c.Unlock()
	return c.counters()
}

// counters returns the channel's counters. The lock is held.
func (c *Channel) counters() rc.Counters {
	n := c.QP.Counters()
	if c.earlier != nil {
		n = c.earlier.Plus(n)
	}
	return n
}

// Packets counts those that the channel has sent and received since it was made or reset.
func (c *Channel) Packets() (sent, received uint64) {
	c.Lock()
	defer c.Unlock()
	n := c.QP.Counters()
	return n.Sent, n.Received
}

// Receive implements Owner.
func (c *Channel) Receive(packets []roce.Received, how Mode) {
	c.Lock()
	defer c.Unlock()
	d := c.device
	if how == Deferred {
		c.delivery = &d.Delivery
		defer func() { c.delivery = nil }()
	}
	now := d.Clock.Now()
	// An acknowledgement is put off once: a consumer that answers each of its peer's messages
	// need not have room for many of its own.
	// One that is owed for a lot of data is put off again.
	if !c.QP.AcknowledgementPending() {
		c.unacknowledged = 0
	}
	hold := how != AtOnce && (!c.QP.AcknowledgementPending() || c.unacknowledged >= bulkBytes)
	frames, octets := 0, 0
	requested := false
	for i := range packets {
		p := &packets[i]
		// roce.md 7.1 (1): what is not from the peer, or not of a reliable connection,
		// is nobody's.
		op := p.Header.Opcode
		switch fromPeer := p.Flow.Remote == c.flow.Remote && p.Flow.Local == c.flow.Local; {
		case fromPeer && op == roce.CNP:
			c.handleCNP(now)
			continue
		case !fromPeer, !p.Header.InDefaultPartition(), !op.IsRequest() && !op.IsResponse():
			d.Misdirected.Add(1)
			continue
		}
		if roce.IsCE(p.Class) {
			c.handleMark(now, op)
		}
		frames++
		octets += frameOctets(&p.Flow, op, len(p.Payload))
		requested = requested || op.IsRequest() && p.Header.PSN == c.firstPSN
		c.QP.Handle(now, &p.Header, p.Payload)
	}
	c.QP.FinishPlacing()
	d.Traffic.InOctets.Add(uint64(octets))
	d.Traffic.InFrames.Add(uint64(frames))
	// Packets from our own address are ours: they would have a queue pair believe in another of this device because of
	// its own questions, which that does not answer.
	if c.path != nil && frames > 0 && c.flow.Remote != c.flow.Local && c.QP.State() == rc.Ready { // else it may be retired
		c.path.noteHeard(now, c)
	}
	if c.listening && requested {
		c.listening = false
		c.model.Requested()
	}
	c.QP.HoldAcknowledgement(hold)
	c.Progress(now)
	c.QP.HoldAcknowledgement(false)
	if how != AtOnce && c.QP.AcknowledgementPending() { // else nobody would ask for it: it goes behind what it waits for
		c.unacknowledged += int32(octets)
		d.Delivery.queueAcknowledgement(c, octets, now)
	}
}

// Acknowledge sends the acknowledgement that was put off, unless it went out with
// something else since. The lock is not held.
func (c *Channel) Acknowledge() {
	c.Lock()
	defer c.Unlock()
	if c.QP.AcknowledgementPending() {
		c.Progress(c.device.Clock.Now())
	}
}

// ProgressAfterPost is Progress after a request was posted: what answers the peer need not wait for an
// acknowledgement that follows, unless that is to be prompt. It goes right behind a request whose completion the consumer
// may wait for: shorter than any request, it is the end of the same super-packet, and costs next to nothing.
func (c *Channel) ProgressAfterPost() {
	hold := c.ackQueued.Load() && !c.Prompt
	c.QP.HoldAcknowledgement(hold)
	c.acknowledgesLast = hold && !c.pipelining() && c.device.Delivery.acknowledgementDue(c.device.Clock)
	c.Progress(c.device.Clock.Now())
	c.acknowledgesLast = false
	c.QP.HoldAcknowledgement(false)
}

// A scratch has the memory that Progress needs while it runs. Channels share them, since
// hundreds of thousands may have to say something now and then, and few at once.
type scratch struct {
	batch       [batchSize]roce.Packet
	completions []rc.Completion
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// mostBatches bounds the batches that are sent in one go, with the lock held: responses to one READ can be very many.
const mostBatches = 64

// continueSoon has Progress go on when others had the lock. The lock is held.
func (c *Channel) continueSoon() {
	if c.continues {
		return
	}
	c.continues = true
	c.device.Clock.Go(func() {
		c.Lock()
		defer c.Unlock()
		c.continues = false
		c.Progress(c.device.Clock.Now())
	})
}

// Progress moves what the state machine has to say: packets to the carrier,
// completions to the model, its deadline to the timer.
func (c *Channel) Progress(now time.Duration) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	d := c.device
	if c.posted && !c.pipelining() {
		c.model.Watch(false) // nothing that is under way will have anybody look there
	}
	c.takeCredit()
	most := 0
	for batches := 0; ; batches++ {
		if batches == mostBatches {
			c.continueSoon()
			break
		}
		n, octets := 0, 0
		most = c.mostPackets()
		if d.Gather {
			c.QP.Gather()
		}
		for n < most {
			if !c.QP.Next(now, &s.batch[n]) && !(n > 0 && c.acknowledgesLast && c.acknowledge(now, &s.batch[n])) {
				break
			}
			s.batch[n].Class = d.congestion.classOf(c.class, s.batch[n].Header.Opcode)
			octets += frameOctets(&c.flow, s.batch[n].Header.Opcode, s.batch[n].PayloadLen())
			n++
		}
		if n == 0 {
			break
		}
		d.Traffic.OutOctets.Add(uint64(octets))
		d.Traffic.OutFrames.Add(uint64(n))
		switch sent, err := d.send(c.flow, s.batch[:n], c.fragile); {
		case err != nil:
			c.QP.Flush() // the carrier is closed: nothing will ever be answered
		case sent < n:
			c.QP.Unreadable(&s.batch[sent].Header)
		}
		c.model.Sent()
	}
	c.model.Sent()
	s.completions = c.QP.Completions(s.completions[:0])
	c.model.Settle(s.completions)
	clear(s.completions) // lets go of the consumer's contexts
	c.settleCredit()
	c.setTimer(now)
	if c.line != nil && (most == 0 || c.QP.WaitsForLine()) {
		c.line.wait(c)
	}
}

// mostPackets returns how many packets may be gathered before they are handed to the carrier. On a line they are handed
// over one by one, and the QP holds back what has data while the line is busy. A pause holds back everything, since
// acknowledgements are of the same class (roce.md 14.4).
func (c *Channel) mostPackets() int {
	if c.line == nil {
		return batchSize
	}
	c.inTurn, c.hasTurn = c.hasTurn, false
	switch {
	case !c.line.paused:
		return 1
	case c.inTurn || c.line.admits():
		return batchSize
	}
	c.QP.HoldAll()
	return 0
}

// A lineOfChannel is the Line as the channel's state machine sees it.
type lineOfChannel Channel

// Busy implements congestion.Line.
func (c *lineOfChannel) Busy() bool { return !c.inTurn && !c.line.admits() }

// acknowledge makes the acknowledgement that is held back; false if there is none.
func (c *Channel) acknowledge(now time.Duration, p *roce.Packet) bool {
	c.acknowledgesLast = false
	c.QP.HoldAcknowledgement(false)
	return c.QP.Next(now, p)
}

// Halt stops waiting for the peer, which has ended the
// connection: nothing is sent again, nothing fails for want of an answer, and
// requests stay pending until they are flushed (NDK-DISC-03).
func (c *Channel) Halt() {
	c.halted = true
	c.settleCredit()
}

// setTimer sets the timer to the state machine's deadline, or leaves it earlier. One that is
// pending and earlier stays until it has little time left: moving it with each packet would
// cost more. While there is progress it does not run. Its goroutine would have to
// wait for the lock, which whoever receives a stream has nearly always, and after a
// millisecond sync.Mutex has the two take turns: many threads would be woken for
// that, on the peer's processor if there are but two.
func (c *Channel) setTimer(now time.Duration) {
	deadline, ok := c.QP.Deadline()
	if !ok || c.timerAt != 0 && c.timerAt <= deadline && c.timerAt-now > (deadline-now)/4 {
		return
	}
	c.timerAt = max(deadline, 1)
	if c.timer == nil {
		c.timer = c.device.timers.AfterFunc(deadline-now, c.timeout)
	} else {
		c.timer.Reset(deadline - now)
	}
}

// absence is the lateness of the timer from which the process counts as one that was
// stopped, or that waits for a processor. It has not read what its peer has sent meanwhile,
// and is given as long again to do so.
const absence = 100 * time.Millisecond

func (c *Channel) timeout() {
	c.Lock()
	defer c.Unlock()
	now := c.device.Clock.Now()
	if c.path != nil {
		c.QP.SetPath(c.path.snapshot())
	}
	if late := now - c.timerAt; late > absence && c.timerAt > 0 {
		c.QP.PostponeGivingUp(late + absence)
	}
	c.timerAt = 0
	if c.halted {
		return
	}
	if deadline, ok := c.QP.Deadline(); ok && deadline <= now {
		c.QP.HandleTimeout(now)
		if c.path != nil && c.QP.WantsProbeElsewhere(now) {
			c.path.probeOnAnother(c)
		}
		c.Progress(now)
		return
	}
	c.setTimer(now)
}

// probe asks the peer how far it has got, for the sake of other channels on the path.
func (c *Channel) probe() {
	c.Lock()
	defer c.Unlock()
	if !c.halted {
		now := c.device.Clock.Now()
		c.QP.Probe(now)
		c.Progress(now)
	}
}
