package provider_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// never stands for no bound in both arguments of ControlInterruptModeration.
const never = math.MaxUint32

func TestModerationArguments(t *testing.T) {
	t.Run("NDK-MOD-02 without the flag", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.AdapterFlags &^= provider.AdapterCQInterruptModeration
		w := newWorldOf(t, addresses, info)
		w.want(w.hosts[0].cq.ControlInterruptModeration(10, 10), provider.StatusNotSupported)
		client, server := w.connect()
		server.cq.Arm(provider.NotifyAny)
		w.sendTo(client, server, 0)
		server.notes.notified(t, success)
	})
	for _, c := range []struct {
		interval, count uint32
		want            provider.Status
	}{
		{0, 0, success}, {0, never, success}, {never, 0, success}, {never, 1, success}, {1, 1, success},
		{never, cqDepth, success}, {never - 1, never, success}, {1, cqDepth + 1, success},
		{never, cqDepth + 1, provider.StatusInvalidParameterMix},
		{never, never, provider.StatusInvalidParameterMix},
	} {
		t.Run(fmt.Sprintf("NDK-MOD-03 NDK-MOD-04 interval %d, count %d", c.interval, c.count), func(t *testing.T) {
			w := newWorld(t)
			w.want(w.hosts[0].cq.ControlInterruptModeration(c.interval, c.count), c.want)
		})
	}
	t.Run("NDK-MOD-04 a mix that is refused changes nothing", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.want(server.cq.ControlInterruptModeration(never, 2), success)
		w.want(server.cq.ControlInterruptModeration(never, never), provider.StatusInvalidParameterMix)
		server.cq.Arm(provider.NotifyAny)
		w.sendTo(client, server, 0)
		server.notes.notified(t)
		w.sendTo(client, server, 0)
		server.notes.notified(t, success)
	})
}

// TestNoModeration: what is armed for is told when it happens, and before time
// moves on.
func TestNoModeration(t *testing.T) {
	settings := map[string]func(*world, *provider.CQ){
		"NDK-MOD-01 fresh": func(*world, *provider.CQ) {},
		"NDK-MOD-09 moderated before": func(w *world, cq *provider.CQ) {
			w.want(cq.ControlInterruptModeration(1e6, 100), success)
			w.want(cq.ControlInterruptModeration(0, 100), success)
		},
	}
	for rule, c := range map[string][2]uint32{
		"NDK-MOD-05 interval 0, any count":    {0, 100},
		"NDK-MOD-05 interval 0, no count":     {0, never},
		"NDK-MOD-06 count 0, any interval":    {1e6, 0},
		"NDK-MOD-06 count 1, any interval":    {1e6, 1},
		"NDK-MOD-06 count 1, never (T20)":     {never, 1},
		"NDK-MOD-05 NDK-MOD-06 neither of it": {0, 0},
	} {
		settings[rule] = func(w *world, cq *provider.CQ) {
			w.want(cq.ControlInterruptModeration(c[0], c[1]), success)
		}
	}
	for name, set := range settings {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.hosts[0]
			set(w, h.cq)
			h.receive(2)
			h.cq.Arm(provider.NotifyAny)
			h.qp.Flush()
			w.clock.Run(0)
			h.notes.notified(t, success)
		})
	}
}

// TestNeverModerated: where no interval ends, no timer runs.
func TestNeverModerated(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	w.want(h.cq.ControlInterruptModeration(never, 2), success)
	h.cq.Arm(provider.NotifyAny)
	h.receive(1)
	h.qp.Flush()
	w.clock.Run(0)
	h.notes.notified(t)
	if w.clock.Step() {
		t.Error("something is to happen")
	}
}

func TestModeration(t *testing.T) {
	const interval = 5 * time.Millisecond
	// set is an interval in microseconds and a count.
	type set struct{ interval, count uint32 }
	for name, c := range map[string]struct {
		set  set
		test func(t *testing.T, w *world, client, server *host)
	}{
		"NDK-MOD-07 count alone": {set{never, 3}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			for range 2 {
				w.sendTo(client, server, 0)
				w.clock.Run(2 * time.Hour)
				server.notes.notified(t)
			}
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
			server.results(3)
		}},
		"NDK-MOD-07 as many as the queue holds": {set{never, cqDepth}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			for range cqDepth - 1 {
				w.sendTo(client, server, 0)
			}
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-07 what was queued before counts": {set{never, 3}, func(t *testing.T, w *world, client, server *host) {
			for range 2 {
				w.sendTo(client, server, 0)
			}
			server.cq.Arm(provider.NotifyAny)
			w.settle()
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-07 enough are queued already": {set{never, 2}, func(t *testing.T, w *world, client, server *host) {
			for range 2 {
				w.sendTo(client, server, 0)
			}
			server.cq.Arm(provider.NotifyAny)
			w.clock.Run(0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-07 what is taken counts no longer": {set{never, 2}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			server.results(1)
			w.sendTo(client, server, 0)
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-07 only what satisfies the arm begins it": {set{never, 2}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifySolicited)
			for range 3 {
				w.sendTo(client, server, 0)
			}
			server.notes.notified(t)
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-07 what does not satisfy the arm counts, too": {set{never, 2}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifySolicited)
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-08 interval alone": {set{5000, never}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.clock.Run(10 * interval) // begins with the completion, not with the arm
			for range 4 {              // a millisecond each; the first begins it
				w.sendTo(client, server, 0)
			}
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			w.clock.Run(time.Millisecond)
			server.notes.notified(t, success)
			w.settle()
			server.notes.notified(t, success) // once
		}},
		"NDK-MOD-08 a count beyond the depth": {set{5000, cqDepth + 1}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			server.notes.notified(t)
			w.clock.Run(interval)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-08 a completion that is there when it is armed": {set{5000, never}, func(t *testing.T, w *world, client, server *host) {
			w.sendTo(client, server, 0)
			w.settle()
			server.cq.Arm(provider.NotifyAny)
			w.clock.Run(interval - 1)
			server.notes.notified(t)
			w.clock.Run(1)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-08 again, while the timer of the first still runs": {set{5000, 2}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.sendTo(client, server, 0) // 2 ms after the timer was set
			server.notes.notified(t, success)
			server.results(2)
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0) // within a millisecond
			w.clock.Run(interval - time.Millisecond - time.Microsecond)
			server.notes.notified(t, success)
			w.clock.Run(time.Millisecond)
			server.notes.notified(t, success, success)
		}},
		"a full queue waits no longer": {set{never - 1, never}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			for range cqDepth - 1 {
				w.sendTo(client, server, 0)
			}
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		}},
		"nor does one that is made smaller": {set{never, 100}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			for range 3 {
				w.sendTo(client, server, 0)
			}
			w.want(server.cq.Resize(4, nil, nil), success)
			w.clock.Run(0)
			server.notes.notified(t)
			w.want(server.cq.Resize(3, nil, nil), success)
			w.clock.Run(0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-09 ended while a notification is held back": {set{never, 100}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.want(server.cq.ControlInterruptModeration(0, 0), success)
			w.clock.Run(0)
			server.notes.notified(t, success)
			w.settle()
			server.notes.notified(t, success)
		}},
		"NDK-MOD-09 NDK-MOD-06 no count while a notification of what is taken is held back": {set{1e6, 100}, func(t *testing.T, w *world, client, server *host) {
			for n := range 2 {
				server.notes.statuses = nil
				w.want(server.cq.ControlInterruptModeration(never, 100), success)
				server.cq.Arm(provider.NotifyAny)
				w.sendTo(client, server, 0)
				server.results(1)
				w.want(server.cq.ControlInterruptModeration(never, uint32(n)), success)
				w.clock.Run(0)
				server.notes.notified(t, success)
			}
		}},
		"NDK-MOD-09 a lower count while a notification is held back": {set{never, 100}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			for range 2 {
				w.sendTo(client, server, 0)
			}
			w.want(server.cq.ControlInterruptModeration(never, 3), success)
			w.clock.Run(0)
			server.notes.notified(t)
			w.want(server.cq.ControlInterruptModeration(never, 2), success)
			w.clock.Run(0)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-09 a shorter interval while a notification is held back": {set{1e6, never}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0) // within a millisecond
			w.want(server.cq.ControlInterruptModeration(5000, never), success)
			w.clock.Run(interval - time.Millisecond - time.Microsecond)
			server.notes.notified(t)
			w.clock.Run(time.Millisecond)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-09 a longer interval while a notification is held back": {set{5000, never}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.want(server.cq.ControlInterruptModeration(500_000, never), success)
			w.clock.Run(490 * time.Millisecond)
			server.notes.notified(t)
			w.clock.Run(10 * time.Millisecond)
			server.notes.notified(t, success)
		}},
		"NDK-MOD-09 no interval while a notification is held back": {set{5000, never}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.want(server.cq.ControlInterruptModeration(never, 2), success)
			w.settle()
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		}},
		"a failure is told at once": {set{never, 100}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyErrors)
			server.cq.Fail()
			w.clock.Run(0)
			server.notes.notified(t, provider.StatusInternalError)
		}},
		"a failure is told instead of what is held back": {set{5000, 100}, func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			server.cq.Fail()
			w.clock.Run(0)
			server.notes.notified(t, provider.StatusInternalError)
			w.settle()
			server.notes.notified(t, provider.StatusInternalError)
		}},
		"closed while a notification is held back": {set{0, 0}, func(t *testing.T, w *world, client, server *host) {
			cq, n := server.newCQ(8)
			w.want(cq.ControlInterruptModeration(never-1, 100), success)
			qp := server.newQPOn(cq, cq, nil)
			w.want(qp.Receive(nil, nil), success)
			cq.Arm(provider.NotifyAny)
			qp.Flush()
			server.close(qp)
			w.want(server.close(cq).returned, success)
			w.settle()
			n.notified(t) // and no timer is left, as the world's end checks
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			w.want(server.cq.ControlInterruptModeration(c.set.interval, c.set.count), success)
			c.test(t, w, client, server)
		})
	}
}
