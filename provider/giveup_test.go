package provider_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// TestGivesUp: the REQ determines how long either end waits for a peer that says
// nothing any more: 7 times 537 ms as we ask for it ourselves, and what a peer asks
// for if it is the one to connect (roce.md 6.4, 12.3, 13). The request that is
// pending then has timed out, those behind it are cancelled.
func TestGivesUp(t *testing.T) {
	for _, test := range []struct {
		name    string
		end     int // 0: the one that connects
		timeout mad.Timeout
		retries uint8
		within  mad.Timeout // of each; 0: timeout
	}{
		{"the end that connects", 0, 17, 6, 0},
		{"the end that accepts", 1, 17, 6, 0},
		{"as a peer asks for it", 1, 14, 3, 0},
		{"as a peer asks for it that will not wait", 1, 12, 0, 0},
		{"not as a peer asks for it that would wait for ever", 1, 0, 6, 17},
		{"nor as one that would wait for hours", 1, 31, 1, 21},
		{"as Linux asks for it", 1, 19, 7, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, gates := newGatedWorld(t)
			gates[1].change = func(p *roce.Received) {
				var request mad.REQ
				if p.Header.DestQPN != mad.QPN || request.Decode(p.Payload) != nil {
					return
				}
				if request.Primary.AckTimeout != 17 || request.RetryCount != 6 || request.RNRRetryCount != 7 {
					t.Errorf("asks for timeout %d, %d retries, %d RNR retries",
						request.Primary.AckTimeout, request.RetryCount, request.RNRRetryCount)
				}
				request.Primary.AckTimeout, request.RetryCount = test.timeout, test.retries
				p.Payload = request.Append(nil)
			}
			w.connect()
			h, peer := w.hosts[test.end], w.hosts[1-test.end]
			w.path.Down = true
			start := w.clock.Now()
			for i := range 2 {
				w.want(h.qp.Write(i, h.at(0, 100), base, peer.mr.RemoteToken(), 0), success)
			}
			h.result(provider.StatusIOTimeout)
			if took, want := w.clock.Now()-start, time.Duration(test.retries+1)*cmp.Or(test.within, test.timeout).Ack(); took != want {
				t.Errorf("gave up after %v, not %v", took, want)
			}
			h.result(provider.StatusCancelled)
			w.clock.Run(time.Millisecond)
			if h.disconnected != 1 {
				t.Errorf("%d disconnect events", h.disconnected)
			}
			if n := h.device.TransportCounters()["retransmitted"]; n > 20 {
				t.Errorf("%d packets sent to nobody", n)
			}
			w.path.Down = false
		})
	}
}

// TestGoneAmongTraffic: a queue pair that is gone is told from one whose answer is behind what
// its host sends for others: another queue pair asks, if it sends nothing itself, and is
// answered.
func TestGoneAmongTraffic(t *testing.T) {
	c := newCreditWorld(t, 2)
	c.deaf[c.numbers[0]] = true
	start := c.clock.Now()
	c.write(0, 100)
	stop := c.chatter()
	wait := 7 * mad.Timeout(17).Ack()
	c.clock.Run(wait/2 - 1)
	if n := c.arrived[c.numbers[1]]; n > 0 {
		t.Errorf("the other queue pair has asked %d times before half of the time was over", n)
	}
	c.client.result(provider.StatusIOTimeout)
	stop()
	if took := c.clock.Now() - start; took != wait {
		t.Errorf("gave up after %v, not %v", took, wait)
	}
	c.clock.Run(time.Second)
	if counters := c.client.device.TransportCounters(); counters["spurious_retransmissions"] > 0 {
		t.Errorf("%v", counters)
	}
}

// TestGoneIsNotForgotten: that a later packet was answered on one queue pair is known, though
// all that is heard then is on another, which has had no answer.
func TestGoneIsNotForgotten(t *testing.T) {
	c := newCreditWorld(t, 3)
	c.deaf[c.numbers[0]] = true
	mute := c.qps[2].Number()
	c.gates[0].change = func(p *roce.Received) {
		if p.Header.DestQPN == mute && p.Header.Opcode == roce.Acknowledge {
			p.Header.DestQPN = 0
		}
	}
	start := c.clock.Now()
	c.write(0, 100)
	stop := c.chatter()
	c.clock.Run(time.Second)
	c.write(1, 100)
	c.client.result(success)
	c.client.result(provider.StatusIOTimeout)
	stop()
	if took, want := c.clock.Now()-start, 7*mad.Timeout(17).Ack(); took != want {
		t.Errorf("gave up after %v, not %v", took, want)
	}
}

// TestNoQuestionAfterTheEnd: a queue pair whose connection the peer has ended does not ask for
// others.
func TestNoQuestionAfterTheEnd(t *testing.T) {
	c := newCreditWorld(t, 2)
	c.deaf[c.numbers[0]] = true
	c.write(0, 100)
	stop := c.chatter()
	c.clock.Run(time.Second)
	stop()
	c.want(c.finish(c.server.disconnect()), success)
	c.client.result(provider.StatusIOTimeout)
	if n := c.arrived[c.numbers[1]]; n > 0 {
		t.Errorf("it has asked %d times", n)
	}
}

// chatter has the server write on the connection that was made last, 20 times a second.
func (w *world) chatter() (stop func()) {
	client, server := w.hosts[0], w.hosts[1]
	var next clock.Timer
	var write func()
	write = func() {
		w.want(server.qp.Write(nil, server.at(0, 100), base, client.mr.RemoteToken(), provider.OpSilentSuccess), success)
		next = w.clock.AfterFunc(50*time.Millisecond, write)
	}
	write()
	return func() { next.Stop() }
}

// TestAnswersBehindTraffic: as long as a peer's host is heard, on whichever connection, and
// nothing that was sent later is answered, a queue pair waits for its answer.
func TestAnswersBehindTraffic(t *testing.T) {
	c := newCreditWorld(t, 2)
	late := true
	c.gates[0].change = func(p *roce.Received) {
		if late && p.Header.Opcode == roce.Acknowledge {
			p.Header.DestQPN = 0
		}
	}
	stop := c.chatter()
	c.write(0, 100)
	c.clock.Run(20 * time.Second)
	late = false
	c.client.result(success)
	stop()
}

// TestDialBehindTraffic: so it is with the answer to a REQ, which is waited for for 90 s then.
// Where packets that were sent later are answered it is 30 s, as where nothing is heard.
func TestDialBehindTraffic(t *testing.T) {
	for answered, want := range map[bool]time.Duration{false: 90 * time.Second, true: 30 * time.Second} {
		w, gates := newGatedWorld(t)
		client, server := w.connect()
		gates[1].change = func(p *roce.Received) {
			if p.Header.DestQPN == mad.QPN {
				p.Header.DestQPN = 0
			}
		}
		stop := w.chatter()
		w.settle()
		start := w.clock.Now()
		dial := client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), server.service())
		w.clock.Run(time.Second)
		if answered {
			w.want(client.qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
			client.result(success)
		}
		w.want(w.finish(dial), provider.StatusIOTimeout)
		stop()
		if took := w.clock.Now() - start; took.Truncate(time.Second) != want {
			t.Errorf("others are answered: %v: gave up after %v, want %v", answered, took, want)
		}
		gates[1].change = nil
	}
}

// TestRNRLimit: a peer that is never ready has as many tries as it said, and is
// then taken to have timed out (roce.md 6.3, 7; 8); 7 is for ever.
func TestRNRLimit(t *testing.T) {
	for tries := range uint8(8) {
		t.Run(fmt.Sprint(tries), func(t *testing.T) {
			w, gates := newGatedWorld(t)
			sent := 0
			gates[0].change = func(p *roce.Received) {
				var reply mad.REP
				if p.Header.DestQPN == mad.QPN && reply.Decode(p.Payload) == nil {
					reply.RNRRetryCount = tries
					p.Payload = reply.Append(nil)
				}
			}
			gates[1].change = func(p *roce.Received) {
				if p.Header.Opcode == roce.SendOnly {
					sent++
				}
			}
			client, server := w.connect()
			w.want(client.qp.Send(nil, nil, 0), success) // for which there is no receive
			if tries == 7 {
				w.clock.Run(10 * time.Second)
				if sent < 1000 {
					t.Errorf("%d tries in 10 s", sent)
				}
				server.receive(1)
				client.result(success)
				return
			}
			client.result(provider.StatusIOTimeout)
			if sent != int(tries)+1 {
				t.Errorf("sent %d times, with %d tries more than the first", sent, tries)
			}
		})
	}
}

// A sleeper is a process that can be stopped: its clock, and the gate before its adapter.
// Timers that become due and packets that arrive meanwhile have to wait.
type sleeper struct {
	clock.Clock
	*gate
	stopped bool
	due     []func()
}

func (s *sleeper) AfterFunc(d time.Duration, f func()) clock.Timer {
	return s.Clock.AfterFunc(d, func() {
		if s.stopped {
			s.due = append(s.due, f)
		} else {
			f()
		}
	})
}

func (s *sleeper) stop() { s.stopped, s.keep = true, true }

// goOn has what is due done before anything is read.
func (s *sleeper) goOn() {
	s.stopped = false
	for _, f := range s.due {
		f()
	}
	s.due = nil
	s.open()
}

// TestStoppedWhileWaiting: a process that was stopped, or had no processor, has not heard
// its peer, and does not conclude from that that it said nothing.
func TestStoppedWhileWaiting(t *testing.T) {
	for name, before := range map[string]time.Duration{
		"at once": 0, "when it has asked again": 3 * time.Second, "when it is about to give up": 3750 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			var sleepers []*sleeper
			w := newWorldWith(t, addresses, func(cfg *provider.Config) {
				s := &sleeper{Clock: cfg.Clock, gate: &gate{Carrier: cfg.Carrier}}
				cfg.Clock, cfg.Carrier = s, s.gate
				sleepers = append(sleepers, s)
			})
			client, server := w.connect()
			write := func() {
				w.want(client.qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
			}
			write()
			client.result(success)

			w.path.Down = before > 0
			write()
			w.clock.Run(before)
			w.path.Down = false
			sleepers[0].stop()
			w.clock.Run(time.Minute)
			sleepers[0].goOn()
			client.result(success)

			// One that has time to listen does conclude it, not much later than usual.
			w.path.Down = true
			write()
			w.clock.Run(time.Second)
			sleepers[0].stop()
			w.clock.Run(time.Minute)
			sleepers[0].goOn()
			start := w.clock.Now()
			client.result(provider.StatusIOTimeout)
			if took := w.clock.Now() - start; took < 2*time.Second || took > 4*time.Second {
				t.Errorf("gave up after %v", took)
			}
			w.path.Down = false
		})
	}
}

// TestStoppedBehindTraffic: nor does it of a peer that it waited for as the peer's host was
// heard, though that was not heard any more either.
func TestStoppedBehindTraffic(t *testing.T) {
	var sleepers []*sleeper
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		s := &sleeper{Clock: cfg.Clock, gate: &gate{Carrier: cfg.Carrier}}
		cfg.Clock, cfg.Carrier = s, s.gate
		sleepers = append(sleepers, s)
	})
	client, server := w.connect()
	qp, number := client.qp, server.qp.Number()
	w.rejoin()
	late := true
	sleepers[0].change = func(p *roce.Received) {
		if late && p.Header.Opcode == roce.Acknowledge {
			p.Header.DestQPN = 0
		}
	}
	stop := w.chatter()
	w.want(qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
	w.clock.Run(20 * time.Second)
	sleepers[1].change = func(p *roce.Received) {
		if late && p.Header.DestQPN == number { // a question, whose answer is to wait
			late = false
			stop()
			sleepers[0].stop()
		}
	}
	w.wait("a question", func() bool { return !late })
	w.clock.Run(time.Minute)
	sleepers[0].goOn()
	client.result(success)
}

// A punctual is a clock that counts what it has had done at its time.
type punctual struct {
	clock.Clock
	ran int
}

func (p *punctual) AfterFunc(d time.Duration, f func()) clock.Timer {
	return p.Clock.AfterFunc(d, func() { p.ran++; f() })
}

// TestTimerRests: while there is progress all the time, a queue pair's timer is moved before
// it runs, which would disturb whoever brings the progress about; and it still finds out when
// that ends.
func TestTimerRests(t *testing.T) {
	var clocks []*punctual
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		c := &punctual{Clock: cfg.Clock}
		cfg.Clock = c
		clocks = append(clocks, c)
	})
	client, server := w.connect()
	w.settle()
	write := func() {
		w.want(client.qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
	}
	write()
	before := clocks[0].ran
	for range 10_000 { // some 200 ms
		write()
		client.result(success)
	}
	if n := clocks[0].ran - before; n > 0 {
		t.Errorf("the timer ran %d times", n)
	}
	w.path.Down = true
	client.result(provider.StatusIOTimeout)
	if n := clocks[0].ran - before; n == 0 {
		t.Error("the timer did not run")
	}
}
