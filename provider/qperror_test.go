package provider_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/provider"
)

// A device tells once of each queue pair that goes to error otherwise than by its
// consumer's doing, and why.
func TestQPErrors(t *testing.T) {
	for name, c := range map[string]struct {
		do                 func(w *world, client, server *host)
		atClient, atServer []string
	}{
		"a write without a right": {
			func(w *world, client, server *host) {
				w.want(client.qp.Write(nil, client.at(0, 1), 0, 0, 0), success)
				client.result(provider.StatusRemoteResources)
			},
			[]string{"the peer refused access to its memory"}, []string{"a request of the peer was refused"},
		},
		"a receive that is too short": {
			func(w *world, client, server *host) {
				w.want(server.qp.Receive(nil, server.at(0, 1)), success)
				w.want(client.qp.Send(nil, client.at(0, 2), 0), success)
				w.settle()
			},
			[]string{"the peer found a request invalid"}, []string{"a message was longer than what it was to be received in"},
		},
		"silence": {
			func(w *world, client, server *host) {
				w.path.Down = true
				w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
				w.clock.Run(10 * time.Second)
				w.path.Down = false
				w.clock.Run(10 * time.Second)
			},
			[]string{"no answer from the peer has arrived"}, nil,
		},
		"a completion queue that overruns": {
			func(w *world, client, server *host) { w.overrun(client, server) },
			nil, []string{"a completion queue or shared receive queue of it has failed"},
		},
		"a disconnect": {
			func(w *world, client, server *host) { w.want(w.finish(client.disconnect()), success) },
			nil, nil,
		},
		"a flush": {
			func(w *world, client, server *host) { client.qp.Flush() },
			nil, nil,
		},
		"a close": {
			func(w *world, client, server *host) { w.finish(server.close(server.conn)) },
			nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told [2][]provider.QPError
			devices := 0
			w := newWorldWith(t, addresses, func(cfg *provider.Config) {
				at := devices
				devices++
				cfg.QPError = func(e provider.QPError) { told[at] = append(told[at], e) }
			})
			client, server := w.connect()
			c.do(w, client, server)
			w.settle()
			for i, reasons := range [2][]string{c.atClient, c.atServer} {
				var want []provider.QPError
				for _, reason := range reasons {
					want = append(want, provider.QPError{Number: w.hosts[i].qp.Number(), Remote: addresses[1-i], Reason: reason})
				}
				if diff := cmp.Diff(want, told[i], cmp.Comparer(func(a, b provider.QPError) bool { return a == b })); diff != "" {
					t.Errorf("host %d was told %s", i, diff)
				}
			}
		})
	}
}
