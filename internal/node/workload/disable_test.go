package workload

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// TestDisable disables one of the adapters while a workload runs: both ends end,
// close their instances, and say why.
func TestDisable(t *testing.T) {
	for name, victim := range map[string]int{"client": 0, "server": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			spec := Spec{Operation: topology.Write, Size: 65536, Depth: 16, Duration: time.Minute, Verify: true, Seed: 1}
			var disabledAt time.Duration
			got, found := l.run(spec, func(*target) {
				l.clock.Run(50 * time.Millisecond)
				disabledAt = l.clock.Now()
				if status := l.devices[victim].SetState(false); status != provider.StatusSuccess {
					t.Fatal(status)
				}
				if !l.clock.RunUntil(func() bool { return l.devices[victim].Usage().Instances == 0 }, time.Second) {
					t.Fatal("an instance is left open")
				}
			})
			if took := l.ended - disabledAt; took > time.Second {
				t.Errorf("it took the client %v to end", took)
			}
			if got.Messages == 0 || got.Errors == 0 {
				t.Errorf("client: %+v", got)
			}
			text := got.Error
			if victim == 1 {
				text = found.Error
			}
			if text != disabled {
				t.Errorf("client: %q, server: %q", got.Error, found.Error)
			}
		})
	}
}

// TestDisableWhileConnecting has nobody answer yet.
func TestDisableWhileConnecting(t *testing.T) {
	l := newLab(t)
	l.path.Down = true
	got, _ := l.run(Spec{Operation: topology.Send, Size: 1, Depth: 1, Count: 1}, func(*target) {
		l.clock.Run(100 * time.Millisecond)
		l.devices[0].SetState(false)
	})
	if got.Error != disabled || l.ended > time.Second {
		t.Errorf("after %v: %+v", l.ended, got)
	}
}

// TestDisabledAdapter starts workloads on an adapter that is disabled, and on one
// that was and is enabled again.
func TestDisabledAdapter(t *testing.T) {
	l := newLab(t)
	spec := Spec{Operation: topology.Send, Size: 1, Depth: 1, Count: 1}
	for i, m := range l.devices {
		m.SetState(false)
		var err error
		if i == 0 {
			_, err = runStream(m, l.clock, nil, spec, clientAddress, serverAddress, func(Result) { t.Error("done") })
		} else {
			_, err = serveMessages(m, l.clock, nil, spec, serverAddress)
		}
		if !errors.Is(err, provider.StatusAdapterNotReady) {
			t.Errorf("%d: %v", i, err)
		}
		m.SetState(true)
	}
	// The events of before are still to be told.
	if got, _ := l.run(spec, nil); got.Messages != 1 || got.Error != "" {
		t.Errorf("enabled again: %+v", got)
	}
}

// TestStopTwice ends a server again, while it ends and when it has. It is never told from
// within the call.
func TestStopTwice(t *testing.T) {
	l := newLab(t)
	server, err := serveMessages(l.devices[1], l.clock, nil, Spec{Operation: topology.Send, Size: 1, Depth: 1}, serverAddress)
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	stop := func() {
		before := stopped
		server.Stop(func(ServerResult) { stopped++ })
		if stopped != before {
			t.Error("the call has called back")
		}
	}
	stop()
	stop()
	l.clock.Run(time.Second)
	stop()
	l.clock.Run(time.Second)
	if stopped != 3 || l.devices[1].Usage().Instances != 0 {
		t.Errorf("%d of 3 calls were answered, usage %+v", stopped, l.devices[1].Usage())
	}
}

// TestLimits has adapters that are too small for a workload, which is told.
func TestLimits(t *testing.T) {
	for _, test := range []struct {
		want   string
		narrow func(*provider.AdapterInfo)
	}{
		{"a MaxInitiatorQueueDepth of 64, the adapter has 63", func(i *provider.AdapterInfo) { i.MaxInitiatorQueueDepth = 63 }},
		{"a MaxReceiveQueueDepth of 32, the adapter has 31", func(i *provider.AdapterInfo) { i.MaxReceiveQueueDepth = 31 }},
		{"a MaxCqDepth of 128, the adapter has 127", func(i *provider.AdapterInfo) { i.MaxCqDepth = 127 }},
		{"a MaxTransferLength of 1000, the adapter has 999", func(i *provider.AdapterInfo) { i.MaxTransferLength = 999 }},
		{"a MaxRegistrationSize of 32000, the adapter has 1", func(i *provider.AdapterInfo) { i.MaxRegistrationSize = 1 }},
		{"a MaxInlineDataSize of 16, the adapter has 15", func(i *provider.AdapterInfo) { i.MaxInlineDataSize = 15 }},
		{"a MaxCallerData of 28, the adapter has 27", func(i *provider.AdapterInfo) { i.MaxCallerData = 27 }},
		{"a MaxCalleeData of 12, the adapter has 11", func(i *provider.AdapterInfo) { i.MaxCalleeData = 11 }},
	} {
		l := newLabWith(t, func(c *provider.Config) { test.narrow(&c.Info) })
		spec := Spec{Name: "w", Operation: topology.Write, Size: 1000, Depth: 16, Count: 1}
		_, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress)
		if err == nil || !strings.HasSuffix(err.Error(), "it needs "+test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
		l.clock.Run(time.Second)
		if l.devices[1].Usage() != (provider.Usage{}) {
			t.Errorf("%s: left open: %+v", test.want, l.devices[1].Usage())
		}
	}
}

// TestReadLimits has adapters that can have fewer READs in progress than a
// workload asks for.
func TestReadLimits(t *testing.T) {
	got, _ := newLabWith(t, func(c *provider.Config) {
		c.Info.MaxInboundReadLimit, c.Info.MaxOutboundReadLimit = 2, 3
	}).run(Spec{Operation: topology.Read, Size: 100, Depth: 16, Count: 100, Verify: true}, nil)
	if got.Messages != 100 || got.Error != "" {
		t.Errorf("got %+v", got)
	}
}

// TestPend has adapters on which nothing completes at once.
func TestPend(t *testing.T) {
	for _, operation := range []topology.Operation{topology.Write, topology.Read, topology.Send} {
		l := newLabWith(t, func(c *provider.Config) { c.Pend = true })
		got, found := l.run(Spec{Operation: operation, Size: 1000, Depth: 4, Count: 100, Verify: true}, nil)
		if got.Messages != 100 || got.Error != "" || found.Error != "" {
			t.Errorf("%s: client %+v, server %+v", operation, got, found)
		}
	}
}

// TestEndedIsDeaf has ends of workloads that are over hear of what no longer
// concerns them.
func TestEndedIsDeaf(t *testing.T) {
	spec := Spec{Operation: topology.Send, Size: 1, Depth: 1, Count: 1}
	t.Run("server", func(t *testing.T) {
		l := newLab(t)
		server, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress)
		if err != nil {
			t.Fatal(err)
		}
		server.Stop(func(ServerResult) {})
		l.clock.Run(time.Second)
		// An instance of another's, so that the event is not over at once.
		if _, status := l.devices[1].OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion}); status != provider.StatusSuccess {
			t.Fatal(status)
		}
		l.devices[1].SetState(false)
		l.clock.Run(time.Second)
		server.Stop(func(found ServerResult) {
			if found.Error != "" {
				t.Errorf("it was disabled after its end: %+v", found)
			}
		})
	})
	t.Run("client that could not start", func(t *testing.T) {
		l := newLab(t)
		w := newStream(l.devices[0], l.clock, nil, spec, serverAddress.Addr(), serverAddress, func(Result) { t.Error("done") })
		if err := w.run(nil); err == nil {
			t.Fatal("connected from an address of another's")
		}
		w.Abort("too late")
		l.clock.Run(time.Second)
	})
	t.Run("client that has ended", func(t *testing.T) {
		l := newLab(t)
		var got *Result
		w, err := runStream(l.devices[0], l.clock, nil, spec, clientAddress, serverAddress, func(r Result) { got = &r })
		if err != nil {
			t.Fatal(err)
		}
		connecting := w.channels[0].conn
		w.Abort("enough")
		l.clock.Run(time.Microsecond)
		connecting.answered(nil, provider.StatusSuccess) // which was on its way
		l.clock.Run(time.Minute)
		if got == nil || got.Error != "enough" || w.result.Error != got.Error || w.started || l.devices[0].Usage() != (provider.Usage{}) {
			t.Errorf("%+v, %+v", got, w.result)
		}
	})
}
