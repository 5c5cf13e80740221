package watch

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/trace"
)

// bin is the folder with ndklab.
var bin string

func TestMain(m *testing.M) {
	doctor.Child()
	os.Exit(built.Main(m, &bin, "../../../../cmd/ndklab"))
}

// A recording is a recorder whose captures have a packet a second, from the beginning on.
type recording struct {
	started, running atomic.Int64 // captures
	failure          error
}

func (r *recording) record(ctx context.Context, endpoint string, began func(), add func(*trace.Packet)) error {
	r.started.Add(1)
	r.running.Add(1)
	defer r.running.Add(-1)
	if r.failure != nil {
		return r.failure
	}
	began()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		add(&trace.Packet{Stamp: time.Now().UnixNano(), From: endpoint})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// A capture begins with the first request for its interface, goes on while there are more, of either kind, and ends 10 s after the
// last. The next one begins anew.
func TestCapturesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recording
		began := time.Now()
		w := newWatch(began, r.record)
		ask := func(want int) {
			t.Helper()
			synctest.Wait()
			rows, err := w.Rows(t.Context(), "a:eth0", 1000)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(rows) != want || len(rows) > 0 && (rows[0].From != "a:eth0" || rows[0].At < 0 || rows[0].At > time.Since(began).Seconds()) {
				t.Fatalf("after %v %d packets, want %d: %+v", time.Since(began), len(rows), want, rows)
			}
		}
		if _, err := w.Rows(t.Context(), "a:eth0", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9*time.Second + time.Millisecond)
		ask(10)
		time.Sleep(9 * time.Second)
		if _, err := w.Sequence(t.Context(), trace.QueuePair{Endpoint: "a:eth0", QPN: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		ask(28)
		if r.started.Load() != 1 || r.running.Load() != 1 {
			t.Fatalf("%d of %d captures run", r.running.Load(), r.started.Load())
		}
		time.Sleep(idle - time.Nanosecond)
		synctest.Wait()
		if r.running.Load() != 1 {
			t.Error("the capture ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if r.running.Load() != 0 {
			t.Error("the capture goes on")
		}
		if _, err := w.Rows(t.Context(), "a:eth0", 1); err != nil {
			t.Fatal(err)
		}
		ask(1)
		if _, err := w.Rows(t.Context(), "b:eth0", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r.started.Load() != 3 || r.running.Load() != 2 {
			t.Errorf("%d of %d captures run", r.running.Load(), r.started.Load())
		}
		w.Close()
		if r.running.Load() != 0 {
			t.Error("a capture goes on after the end")
		}
		if _, err := w.Rows(t.Context(), "a:eth0", 1); !errors.Is(err, errClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A capture that cannot begin says why to who asks, and the next request tries again. A request whose context ends does not wait.
func TestCapturesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recording{failure: errors.New("no such interface")}
		w := newWatch(time.Now(), r.record)
		defer w.Close()
		for i := range 2 {
			if _, err := w.Rows(t.Context(), "a:eth0", 1); !errors.Is(err, r.failure) {
				t.Errorf("%v", err)
			}
			if synctest.Wait(); r.started.Load() != int64(i+1) || r.running.Load() != 0 {
				t.Errorf("%d of %d captures run", r.running.Load(), r.started.Load())
			}
		}
		slow := newWatch(time.Now(), func(ctx context.Context, _ string, _ func(), _ func(*trace.Packet)) error {
			<-ctx.Done()
			return ctx.Err()
		})
		defer slow.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := slow.Rows(ctx, "a:eth0", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
