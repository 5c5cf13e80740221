package workload

import (
	"fmt"
	"sync/atomic"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An instance is the adapter instance of one end of a workload.
type instance struct {
	*provider.Adapter
	unsubscribe func()
}

// disabled is the reason why a workload ends when its adapter is disabled.
const disabled = "the adapter was disabled"

// openInstance opens an instance of a device whose limits fit, and has disable called
// when the device asks for it to be closed.
func openInstance(m *provider.Miniport, fits func(provider.AdapterInfo) error, disable func()) (*instance, error) {
	// Before the instance is open, so that no event about it is missed.
	unsubscribe := m.Subscribe(func(e provider.NetEvent) {
		select {
		case <-e.Done: // by enabling, or a disabling that was over when the instance was opened
		default:
			disable()
		}
	})
	a, status := m.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		unsubscribe()
		return nil, fmt.Errorf("open adapter: %w", status)
	}
	i := &instance{a, unsubscribe}
	if err := fits(a.Info()); err != nil {
		i.close(func() {})
		return nil, err
	}
	return i, nil
}

// close closes the instance and calls done when everything made on it is closed.
func (i *instance) close(done func()) {
	i.unsubscribe()
	i.BeginClose(done)
}

// messageNeeds returns the limits that an end of a flow of sends, writes or reads needs.
func (s *Spec) messageNeeds(info provider.AdapterInfo) []need {
	slots := uint64(s.slots())
	needs := []need{
		{"MaxInitiatorQueueDepth", 2 * slots, uint64(info.MaxInitiatorQueueDepth)},
		{"MaxReceiveQueueDepth", slots, uint64(info.MaxReceiveQueueDepth)},
		{"MaxTransferLength", s.Size, uint64(info.MaxTransferLength)},
		{"MaxRegistrationSize", max(s.room(), patternLen(s)), info.MaxRegistrationSize},
		{"MaxInlineDataSize", uint64(s.inline()), uint64(info.MaxInlineDataSize)},
		{"MaxCallerData", helloLen, uint64(info.MaxCallerData)},
		{"MaxCalleeData", grantLen, uint64(info.MaxCalleeData)},
		{"MaxSrqDepth", 0, uint64(info.MaxSrqDepth)},
	}
	if s.SRQ {
		needs[len(needs)-1].needed = slots
	}
	return needs
}

// satisfied returns an error that says which of the limits is too narrow.
func satisfied(needs []need) error {
	for _, n := range needs {
		if n.needed > n.has {
			return fmt.Errorf("it needs a %s of %d, the adapter has %d", n.limit, n.needed, n.has)
		}
	}
	return nil
}

// reads returns how many READs a connection may have in progress in either direction: as
// many as perftest asks for, or as the adapter can.
func (i *instance) reads() (inbound, outbound uint32) {
	const asked = 16
	info := i.Info()
	return min(asked, info.MaxInboundReadLimit), min(asked, info.MaxOutboundReadLimit)
}

// A closer is an NDK object.
type closer interface {
	Close(completion provider.CloseCompletion, context any) provider.Status
}

// closeAll closes objects and then their instance, and runs done when all is
// closed. An object's antecedents may stand before it: their close pends.
// Without an instance there are no objects.
func closeAll(objects []closer, i *instance, done func()) {
	if i == nil {
		done()
		return
	}
	for _, o := range objects {
		o.Close(func(any) {}, nil)
	}
	i.close(done) // which pends until they are closed
}

// closeEach closes objects and runs done, later, when all are closed.
func closeEach(c clock.Clock, objects []closer, done func()) {
	left := newCountdown(c, done)
	for _, o := range objects {
		left.add()
		if o.Close(left.done, nil) != provider.StatusPending {
			left.done(nil)
		}
	}
	left.done(nil)
}

// A countdown runs a function, later, when all that it waits for is done.
type countdown struct {
	clock clock.Clock
	left  atomic.Int32
	f     func()
}

// newCountdown waits for one thing, which is that everything else has been added.
func newCountdown(c clock.Clock, f func()) *countdown {
	d := &countdown{clock: c, f: f}
	d.left.Store(1)
	return d
}

func (d *countdown) add() { d.left.Add(1) }

// done is called once for each thing; it is a provider.CloseCompletion.
func (d *countdown) done(any) {
	if d.left.Add(-1) == 0 {
		d.clock.Go(d.f)
	}
}
