package verbs_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A performer is a local operation of the test's, carried out with the queue pair's lock held.
type performer func()

// Perform implements rc.LocalOperation.
func (p performer) Perform() rc.Status {
	p()
	return rc.Success
}

// TestEndsWhileBinding: a window or a region that ends while a queue pair binds it waits for the queue pair, which does
// not wait for it.
func TestEndsWhileBinding(t *testing.T) {
	for name, end := range map[string]func(*verbs.MW, *verbs.MR) error{
		"the window": func(w *verbs.MW, _ *verbs.MR) error { return w.Dealloc() },
		"the region": func(_ *verbs.MW, m *verbs.MR) error {
			for {
				if err := m.Deregister(); !errors.Is(err, syscall.EBUSY) {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			qp := w.pair(verbs.RC, nil)[0]
			a := w.hosts[0]
			mr, err := a.pd.RegisterMR(verbs.Bytes(a.memory), size, base, all)
			check(t, err)
			mw, err := a.pd.AllocMW(verbs.Window1)
			check(t, err)
			ended := make(chan error, 1)
			r := verbs.SendRequest{ID: 1}
			r.Op, r.Local = rc.OpBind, performer(func() {
				go func() { ended <- end(mw, mr) }()
				for { // until it has ended
					bind, _, err := qp.Bind(mw, 0, verbs.Binding{MR: mr, Address: base, Length: 8})
					check(t, err)
					if bind.Perform() != rc.Success {
						return
					}
					unbind, _, err := qp.Bind(mw, 0, verbs.Binding{})
					check(t, err)
					if unbind.Perform() != rc.Success {
						return
					}
				}
			})
			posted := make(chan error, 1)
			go func() {
				_, err := qp.Post([]verbs.SendRequest{r})
				posted <- err
			}()
			for _, done := range []chan error{posted, ended} {
				select {
				case err := <-done:
					check(t, err)
				case <-time.After(10 * time.Second):
					t.Fatal("they wait for each other")
				}
			}
		})
	}
}

// TestBindingOfTheGone: a request to bind a window that has been deallocated meanwhile fails, and grants nothing.
func TestBindingOfTheGone(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	mw, err := b.pd.AllocMW(verbs.Window1)
	check(t, err)
	bind, key := bindRequest(t, qps[1], mw, 0, verbs.Binding{MR: b.mr, Address: base, Length: 100, Access: verbs.AccessRemoteWrite})
	w.modify(qps[1], verbs.Attributes{State: verbs.SendQueueDrain}, 0)
	w.post(qps[1], bind)
	check(t, mw.Dealloc())
	w.modify(qps[1], verbs.Attributes{State: verbs.ReadyToSend}, 0)
	b.completed(fmt.Sprint("bind 50 status ", verbs.WindowBindError))
	others := w.pair(verbs.RC, nil)
	r := a.request(rc.OpWrite, 1, 0, 10, 0)
	r.Token = key
	w.post(others[0], r)
	a.completed(fmt.Sprint("write 1 status ", verbs.RemoteAccessError))
}

// TestWindowKeys: windows of both types have the keys that the consumer gives, whatever became of bindings before.
func TestWindowKeys(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	b := w.hosts[1]
	for _, kind := range []verbs.WindowType{verbs.Window1, verbs.Window2} {
		mw, err := b.pd.AllocMW(kind)
		check(t, err)
		for _, key := range []uint32{0x42, 0x43, 0x17} { // none of which is posted
			if _, got, err := qps[1].Bind(mw, key, verbs.Binding{MR: b.mr, Address: base, Length: 100}); err != nil || got&0xff != key || got&^0xff != mw.Key()&^0xff {
				t.Errorf("type %v: token %#x of window %#x with key %#x, error %v", kind, got, mw.Key(), key, err)
			}
		}
	}
}
