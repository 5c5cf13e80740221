package provider_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A tray is a carrier that can be polled: what arrives lies there until it is delivered or
// polled for. While it passes, it is delivered at once.
type tray struct {
	provider.Carrier
	receiver provider.Deferrer
	passes   bool
	alone    bool // who polls beside it receives alone
	packets  []roce.Received
	polls    int
	resumed  int
	sent     []roce.Opcode
}

func (c *tray) Listen(r provider.Receiver) {
	c.receiver = r.(provider.Deferrer)
	c.Carrier.Listen(c)
}

func (c *tray) Receive(packets []roce.Received) {
	for _, p := range packets {
		p.Payload = bytes.Clone(p.Payload)
		c.packets = append(c.packets, p)
	}
	if c.passes {
		for c.give(c.receiver); c.receiver.Delivered(); {
		}
	}
}

// give hands what lies there to r, and reports whether there was something.
func (c *tray) give(r provider.Receiver) bool {
	packets := c.packets
	c.packets = nil
	if len(packets) > 0 {
		r.Receive(packets)
	}
	return len(packets) > 0
}

func (c *tray) Poll(r provider.Receiver) bool {
	c.polls++
	return c.give(r)
}

func (c *tray) PollBeside(r provider.Receiver) (arrived, alone bool) { return c.Poll(r), c.alone }

func (c *tray) Resume() { c.resumed++ }

func (c *tray) CatchUp(r provider.Receiver) { c.give(r) }

func (c *tray) Send(flow roce.Flow, packets []roce.Packet) error {
	for i := range packets {
		c.sent = append(c.sent, packets[i].Header.Opcode)
	}
	return c.Carrier.Send(flow, packets)
}

// forget returns what has been sent, and forgets it.
func (c *tray) forget() []roce.Opcode {
	sent := c.sent
	c.sent = nil
	return sent
}

// newTrays is a world of two connected hosts on trays that no longer pass.
func newTrays(t *testing.T) (w *world, client, server *host, trays []*tray) {
	w = newWorldWith(t, addresses, func(cfg *provider.Config) {
		trays = append(trays, &tray{Carrier: cfg.Carrier, passes: true})
		cfg.Carrier = trays[len(trays)-1]
	})
	client, server = w.connect()
	w.settle()
	for _, tr := range trays {
		tr.passes = false
		tr.forget()
	}
	t.Cleanup(func() { // before the end of the world, which needs packets
		for _, tr := range trays {
			tr.passes = true
			tr.Receive(nil)
		}
	})
	return w, client, server, trays
}

// arrive lets what has been sent arrive on the trays, and no timer run.
func (w *world) arrive() { w.clock.Run(50 * time.Microsecond) }

func TestPolling(t *testing.T) {
	w, client, server, trays := newTrays(t)
	at := trays[1]
	results := make([]provider.ResultEx, 4)
	look := func(wantResults, wantPolls int) {
		t.Helper()
		before := at.polls
		if n := server.cq.ResultsEx(results); n != wantResults {
			t.Fatalf("%d results, want %d", n, wantResults)
		}
		if n := at.polls - before; n != wantPolls {
			t.Fatalf("the carrier was polled %d times, want %d", n, wantPolls)
		}
	}
	w.want(server.qp.Receive("first", nil), success)
	w.want(server.qp.Receive("second", nil), success)
	w.want(client.qp.Send(nil, nil, 0), success)
	w.arrive()
	look(0, 0) // a look in vain is not polling yet
	look(1, 1)
	look(0, 1) // but from then on it is
	server.cq.Arm(provider.NotifyAny)
	if at.resumed != 1 {
		t.Errorf("resumed %d times by Arm, want 1", at.resumed)
	}
	// A consumer that will be told does not poll, however often it looks.
	look(0, 0)
	look(0, 0)
	look(0, 0)
	server.cq.Arm(provider.NotifyAny)
	if at.resumed != 1 {
		t.Errorf("resumed %d times by an Arm without polling before", at.resumed-1)
	}
	w.want(client.qp.Send(nil, nil, 0), success)
	w.arrive()
	at.give(at.receiver)
	at.receiver.Delivered()
	look(1, 0)
	// The notification of what was polled for is not run within Results. A consumer that will
	// be told of some completions only may poll for others.
	server.cq.Arm(provider.NotifySolicited)
	w.want(server.qp.Receive("third", nil), success)
	w.want(client.qp.Send(nil, nil, provider.OpSendAndSolicitEvent), success)
	w.arrive()
	told := len(server.notes.statuses)
	look(0, 0)
	look(1, 1)
	if len(server.notes.statuses) != told {
		t.Error("notified within Results")
	}
	w.arrive()
	if len(server.notes.statuses) != told+1 {
		t.Error("not notified")
	}
}

// TestTurnsAway: what a consumer has polled for that then turns to something else is acknowledged within milliseconds,
// before the carrier notices; its peer may wait for that.
func TestTurnsAway(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w, client, server, trays := newTrays(t)
		at := trays[1]
		at.alone = alone
		w.want(server.qp.Receive(nil, nil), success)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.arrive()
		if !server.device.Poll() {
			t.Fatal("nothing has arrived")
		}
		w.clock.Run(2 * time.Millisecond)
		if d := cmp.Diff([]roce.Opcode{roce.Acknowledge}, at.forget()); d != "" {
			t.Errorf("sent, alone %t (-want +got):\n%s", alone, d)
		}
	}
}

// TestPollingEndsWithTheQueue: what arrives for others must not wait until the carrier
// notices that nobody polls any more.
func TestPollingEndsWithTheQueue(t *testing.T) {
	w, _, server, trays := newTrays(t)
	cq, status := server.Adapter.CreateCQ(4, nil, nil, nil, nil, nil)
	w.want(status, success)
	for range 3 {
		cq.ResultsEx(make([]provider.ResultEx, 1))
	}
	if at := trays[1]; at.polls == 0 || at.resumed != 0 {
		t.Fatalf("the carrier was polled %d times, and resumed %d times", at.polls, at.resumed)
	}
	w.want(cq.Close(nil, nil), success)
	if resumed := trays[1].resumed; resumed != 1 {
		t.Errorf("resumed %d times by Close, want 1", resumed)
	}
}

// TestDelivered has notifications and acknowledgements wait for Delivered: first the one,
// then, behind what the consumer answers, the other.
func TestDelivered(t *testing.T) {
	w, client, server, trays := newTrays(t)
	at := trays[1]
	w.want(server.qp.Receive(nil, nil), success)
	w.want(client.qp.Receive(nil, nil), success)
	w.want(client.qp.Send(nil, nil, 0), success)
	w.arrive()
	server.cq.Arm(provider.NotifyAny)
	server.notes.then = func() { w.want(server.qp.Send(nil, nil, 0), success) }
	at.give(at.receiver)
	w.arrive()
	if told, sent := len(server.notes.statuses), at.forget(); told > 0 || len(sent) > 0 {
		t.Errorf("told %d times, sent %v by Receive", told, sent)
	}
	if at.receiver.Delivered() {
		t.Error("something is still put off")
	}
	if told := len(server.notes.statuses); told != 1 {
		t.Errorf("told %d times, want 1", told)
	}
	if d := cmp.Diff([]roce.Opcode{roce.SendOnly, roce.Acknowledge}, at.forget()); d != "" {
		t.Errorf("sent (-want +got):\n%s", d)
	}
}

// TestPolledAcknowledgement goes out right behind the consumer's answer, or when it has found nothing again; but is put off
// once only.
func TestPolledAcknowledgement(t *testing.T) {
	w, client, server, trays := newTrays(t)
	at := trays[1]
	for range 4 {
		w.want(server.qp.Receive(nil, nil), success)
		w.want(client.qp.Receive(nil, nil), success)
	}
	results := make([]provider.ResultEx, 4)
	send := func() {
		w.want(client.qp.Send(nil, nil, 0), success)
		w.arrive()
	}
	wantSent := func(want ...roce.Opcode) {
		t.Helper()
		if d := cmp.Diff(want, at.forget()); d != "" {
			t.Errorf("sent (-want +got):\n%s", d)
		}
	}
	server.cq.ResultsEx(results)
	send()
	server.cq.ResultsEx(results)
	wantSent()
	w.want(server.qp.Send(nil, nil, 0), success)
	wantSent(roce.SendOnly, roce.Acknowledge)

	send()
	server.cq.ResultsEx(results)
	wantSent()
	server.cq.Arm(provider.NotifyErrors) // the consumer is through
	wantSent(roce.Acknowledge)

	server.cq.ResultsEx(results)
	send()
	server.cq.ResultsEx(results)
	wantSent()
	server.cq.ResultsEx(results)
	wantSent(roce.Acknowledge)

	send()
	server.cq.ResultsEx(results)
	wantSent()
	send()
	at.give(at.receiver) // of somebody else, before the consumer has looked again
	wantSent(roce.Acknowledge)
}

// TestLastAcknowledgement goes out before the connection ends, however the consumer ends it:
// what it has received was sent.
func TestLastAcknowledgement(t *testing.T) {
	for name, end := range map[string]func(h *host){
		"Disconnect":        func(h *host) { h.disconnect() },
		"Flush":             func(h *host) { h.qp.Flush() },
		"QP's close":        func(h *host) { h.qp.Close(nil, nil) },
		"connector's close": func(h *host) { h.conn.Close(nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w, client, server, trays := newTrays(t)
			at := trays[1]
			w.want(server.qp.Receive(nil, nil), success)
			results := make([]provider.ResultEx, 1)
			server.cq.ResultsEx(results)
			w.want(client.qp.Send(nil, nil, 0), success)
			w.arrive()
			if n := server.cq.ResultsEx(results); n != 1 {
				t.Fatalf("%d results, want 1", n)
			}
			at.forget()
			end(server)
			sent := at.forget()
			if len(sent) == 0 || sent[0] != roce.Acknowledge {
				t.Errorf("sent %v, want an acknowledgement first", sent)
			}
		})
	}
}

// TestBulkIsAcknowledged at a pause, or when there is a good deal.
func TestBulkIsAcknowledged(t *testing.T) {
	w, client, server, trays := newTrays(t)
	at := trays[1]
	write := func(bytes int) {
		for range bytes / len(client.memory) {
			w.want(client.qp.Write(nil, client.at(0, len(client.memory)), base, server.mr.RemoteToken(), provider.OpSilentSuccess), success)
		}
		w.clock.Run(time.Millisecond / 2)
		at.give(at.receiver)
	}
	write(len(client.memory)) // the client learns how long the path is
	at.receiver.Delivered()
	w.clock.Run(50 * time.Microsecond)
	trays[0].give(trays[0].receiver)
	at.forget()

	write(64 << 10)
	if !at.receiver.Delivered() {
		t.Error("nothing is put off any more")
	}
	if sent := at.forget(); slices.Contains(sent, roce.Acknowledge) {
		t.Errorf("sent %v before a pause", sent)
	}
	w.clock.Run(20 * time.Microsecond)
	if at.receiver.Delivered() {
		t.Error("something is put off after a pause")
	}
	if d := cmp.Diff([]roce.Opcode{roce.Acknowledge}, at.forget()); d != "" {
		t.Errorf("sent after a pause (-want +got):\n%s", d)
	}
	w.clock.Run(50 * time.Microsecond)
	trays[0].give(trays[0].receiver)

	write(256 << 10)
	if at.receiver.Delivered() {
		t.Error("something is put off, though there is a good deal")
	}
	w.clock.Run(50 * time.Microsecond)
	trays[0].give(trays[0].receiver)
}

// A drivenClock counts how often it is driven.
type drivenClock struct {
	*clock.Virtual
	advances int
	advanced func()
}

func (c *drivenClock) Driven() (clock.Clock, func()) {
	return c.Virtual, func() {
		c.advances++
		c.advanced()
	}
}

// TestPollingDrives: a consumer that polls runs the device's timers, behind what has arrived: that may have put them off. The
// carrier's goroutine does not.
func TestPollingDrives(t *testing.T) {
	var c *drivenClock
	var carrier *tray
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		c = &drivenClock{Virtual: cfg.Clock.(*clock.Virtual), advanced: func() {}}
		carrier = &tray{Carrier: cfg.Carrier, passes: true}
		cfg.Clock, cfg.Carrier = c, carrier
	})
	h := w.hosts[1]
	for name, test := range map[string]struct {
		poll   func()
		drives bool
	}{
		"Results":   {func() { h.cq.Results(make([]provider.Result, 1)) }, true},
		"Poll":      {func() { h.device.Poll() }, true},
		"Delivered": {func() { carrier.Receive(nil) }, false},
	} {
		c.advances = 0
		for range 100 {
			polls := carrier.polls
			c.advanced = func() {
				if carrier.polls == polls {
					t.Errorf("%s runs timers before what has arrived", name)
				}
			}
			test.poll()
		}
		if test.drives != (c.advances > 0) {
			t.Errorf("%s has the clock driven %d times", name, c.advances)
		}
	}
}
