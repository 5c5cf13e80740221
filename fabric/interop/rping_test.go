package interop

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/ndklab/ndklab/node/workload/rping"
	"github.com/ndklab/ndklab/provider"
)

// Our end of rping, in a node:
//
//	rping-server ADDRESS:PORT SIZE          says "listening" and serves one client
//	rping-client ADDRESS:PORT SIZE ROUNDS
func init() {
	programs["rping-server"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		at, size, err := parseRping(args)
		if err != nil {
			return err
		}
		return rping.Serve(ctx, adapter, at, rping.Options{Size: size}, func() { fmt.Println("listening") })
	}
	programs["rping-client"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		at, size, err := parseRping(args)
		if err != nil {
			return err
		}
		rounds, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return rping.Call(ctx, adapter, at, rounds, rping.Options{Size: size})
	}
}

func parseRping(args []string) (at netip.AddrPort, size int, err error) {
	if at, err = netip.ParseAddrPort(args[0]); err == nil {
		size, err = strconv.Atoi(args[1])
	}
	return at, size, err
}

// rping in both directions, in messages of one packet and of many.
func (s *setting) rping(t *testing.T) {
	if s.lossy {
		s.exchange(t, []exchange{{64, 50}, {65535, 10}})
	} else {
		s.exchange(t, []exchange{{64, 20}, {3001, 5}, {65535, 3}})
	}
}

// An exchange is one run of rping: so many rounds with text of so many bytes.
type exchange struct{ size, rounds int }

// exchange does each in both directions, over both IP versions. Where packets of
// the guest are lost, so may its client's DREQ be, which the kernel does not send
// again once the client has exited: then our server cannot know that it is over.
func (s *setting) exchange(t *testing.T, all []exchange) {
	const port = 7174
	for _, p := range s.pairs {
		for _, c := range all {
			t.Run(fmt.Sprintf("to the node, %v, %d bytes", p.node, c.size), func(t *testing.T) {
				server := s.ours(t, fmt.Sprintf("rping-server %v %d", netip.AddrPortFrom(p.node, port), c.size))
				if line, err := server.out.ReadString('\n'); line != "listening\n" {
					t.Fatal(line, err, server.wait())
				}
				s.guest.run(t, fmt.Sprintf("rping -c -a %v -p %d -S %d -C %d -V", p.node, port, c.size, c.rounds))
				if s.lossy {
					server.kill()
					_ = server.wait() // it may have ended before
				} else if err := server.wait(); err != nil {
					t.Error(err)
				}
			})
			t.Run(fmt.Sprintf("to the guest, %v, %d bytes", p.guest, c.size), func(t *testing.T) {
				server := s.guest.start(fmt.Sprintf("rping -s -a %v -p %d -S %d -C %d -V", p.guest, port, c.size, c.rounds))
				s.guest.run(t, "until rdma resource show cm_id | grep -q 'state LISTEN'; do sleep 0.1; done")
				client := s.ours(t, fmt.Sprintf("rping-client %v %d %d", netip.AddrPortFrom(p.guest, port), c.size, c.rounds))
				if err := client.wait(); err != nil {
					t.Error(err)
				}
				if _, err := server(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
