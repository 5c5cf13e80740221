package provider_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// TestFence looks at the wire: a fenced request is not sent before the last
// response to any read before it, and one that is not fenced is.
func TestFence(t *testing.T) {
	for i, first := range []roce.Opcode{roce.SendOnly, roce.WriteOnly, roce.ReadRequest} {
		for _, fenced := range []bool{false, true} {
			later := initiators(nil)[i].name
			t.Run(fmt.Sprintf("NDK-POST-08 NDK-DEFER-05 %s, fenced: %v", later, fenced), func(t *testing.T) {
				w := newWorld(t)
				client, server := w.connect()
				w.want(server.qp.Receive(nil, server.at(0, 1)), success)
				w.want(client.qp.Write(nil, nil, 0, 0, 0), success) // before a round trip is known, little is sent
				client.result(success)
				var order []roce.Opcode
				w.network.Tap(func(_ time.Duration, packet []byte) { order = append(order, roce.Opcode(packet[28])) })
				flags := provider.OpFlags(0)
				if fenced {
					flags = provider.OpReadFence | provider.OpDefer
				}
				const reads = 2
				for range reads {
					w.want(client.qp.Read(nil, client.at(0, 20000), base, server.mr.RemoteToken(), provider.OpSilentSuccess), success)
				}
				w.want(initiators(server)[i].post(client.qp, nil, client.at(0, 1), flags), success)
				w.want(client.qp.Write(nil, nil, 0, 0, provider.OpSilentSuccess), success)
				client.result(success)
				if first == roce.ReadRequest {
					order = order[nth(order, first, reads)+1:]
				}
				sent, last := nth(order, first, 1), nth(order, roce.ReadResponseLast, reads)
				if sent < 0 || last < 0 || (sent > last) != fenced {
					t.Fatalf("sent as number %d, the last response as %d: %v", sent, last, order)
				}
			})
		}
	}
}

// nth returns the index of the nth op in order; -1 if there are fewer.
func nth(order []roce.Opcode, op roce.Opcode, n int) int {
	for i := range order {
		if order[i] == op {
			n--
		}
		if n == 0 {
			return i
		}
	}
	return -1
}
