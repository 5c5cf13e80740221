package provider_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// TestStateConcurrently: consumers come and go while NDK is switched and the
// device fails and recovers. Events alternate, one at a time, and in the end
// everything can be closed.
func TestStateConcurrently(t *testing.T) {
	defer leak.Check(t)()
	m, err := provider.NewMiniport(provider.Config{Carrier: newWire(0).attach(addresses[0]), Clock: clock.Real(),
		Rand: rand.New(rand.NewPCG(1, 1)), Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities()})
	if err != nil {
		t.Fatal(err)
	}
	next := disable // the callbacks' own: they are serialised
	var events atomic.Int64
	m.Subscribe(func(e provider.NetEvent) {
		if e.Code != next {
			t.Errorf("event %v, want %v", e.Code, next)
		}
		next = enable + disable - next
		events.Add(1)
	})
	const rounds = 200
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range rounds {
				a, status := m.OpenAdapter(anyVersion)
				if status != success {
					if status != provider.StatusAdapterNotReady {
						t.Errorf("opening: %v", status)
					}
					continue
				}
				pd := must(a.CreatePD(nil, nil))
				cq, status := a.CreateCQ(1, nil, nil, nil, nil, nil)
				if status == success {
					if qp, status := pd.CreateQP(cq, cq, nil, 1, 1, 1, 1, 0, nil, nil); status == success {
						awaitClose(qp)
					}
					awaitClose(cq)
				}
				awaitClose(pd)
				a.Close()
			}
		})
	}
	for _, change := range []func(){
		func() { m.SetState(false); m.SetState(true) },
		func() { m.Fail(); m.Recover() },
		func() { m.Subscribe(func(provider.NetEvent) {})() },
		func() { m.Attributes(); m.Connections(); m.Counters() },
	} {
		all.Go(func() {
			for range rounds {
				change()
			}
		})
	}
	all.Wait()
	if a, status := m.OpenAdapter(anyVersion); status != success {
		t.Errorf("opening in the end: %v", status)
	} else {
		a.Close()
	}
	last := make(chan provider.NetEvent, 1)
	m.Subscribe(func(e provider.NetEvent) {
		if m.Attributes().Enabled {
			return // an event from before
		}
		select {
		case last <- e:
		default:
		}
	})
	m.SetState(false)
	<-(<-last).Done
	m.Close()
	if events.Load() == 0 {
		t.Error("no events")
	}
}
