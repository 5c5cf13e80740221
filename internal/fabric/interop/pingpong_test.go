package interop

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/node/workload/pingpong"
	"github.com/ndklab/ndklab/provider"
)

// Our end of ibv_rc_pingpong -c, in a node: the server says "listening" first, and
// serves one client.
//
//	pingpong LOCAL SIZE ITERATIONS [SERVER:PORT]
func init() {
	programs["pingpong"] = func(ctx context.Context, adapter *provider.Adapter, args []string) error {
		o := pingpong.Options{
			MTU: pingpong.DefaultMTU, Receives: pingpong.DefaultReceives, Validate: true, Patience: pingpong.DefaultPatience,
		}
		var err error
		if o.Local, err = netip.ParseAddr(args[0]); err != nil {
			return err
		}
		if o.Size, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
		if o.Iterations, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
		if len(args) > 3 {
			_, err = pingpong.Call(ctx, adapter, args[3], o)
		} else {
			_, err = pingpong.Serve(ctx, adapter, pingpong.DefaultPort, o, func() { fmt.Println("listening") })
		}
		return err
	}
}

// pingpong in both directions, over both IP versions, in messages of four packets
// and of many. TCP is over IPv4 alone, at which ibv_rc_pingpong listens.
func (s *setting) pingpong(t *testing.T) {
	// A message has less than 64 packets: of more, rxe of Linux 6.1 may never send the rest. It stops when so many are in
	// its queue, and misses that it may go on if they leave just then, with everything that it has sent acknowledged.
	all := []struct{ size, rounds int }{{pingpong.DefaultSize, 1000}, {60000, 50}}
	if s.short {
		all[0].rounds, all[1].rounds = 100, 5
	}
	tcp := s.pairs[0]
	for _, p := range s.pairs {
		tool := "ibv_rc_pingpong -c -d rxe0 -g " + s.guest.gid(t, p.guest)
		for _, c := range all {
			theirs := fmt.Sprintf("%s -s %d -n %d", tool, c.size, c.rounds)
			ours := fmt.Sprintf("pingpong %v %d %d", p.node, c.size, c.rounds)
			t.Run(fmt.Sprintf("to the node, %v, %d bytes", p.node, c.size), func(t *testing.T) {
				server := s.ours(t, ours)
				if line, err := server.out.ReadString('\n'); line != "listening\n" {
					t.Fatal(line, err, server.wait())
				}
				client := s.guest.start(theirs + " " + tcp.node.String())
				// If it fails, the client may wait for ever.
				if err := server.wait(); err != nil {
					t.Fatal(err)
				}
				out, err := client()
				if err != nil {
					t.Error(err)
				}
				finished(t, c.rounds, out)
			})
			t.Run(fmt.Sprintf("to the guest, %v, %d bytes", p.guest, c.size), func(t *testing.T) {
				server := s.guest.start(theirs)
				s.guest.run(t, fmt.Sprintf("until ss -Hltn sport = :%d | grep -q .; do sleep 0.1; done", pingpong.DefaultPort))
				client := s.ours(t, fmt.Sprintf("%s %v:%d", ours, tcp.guest, pingpong.DefaultPort))
				if err := client.wait(); err != nil {
					t.Error(err)
				}
				out, err := server()
				if err != nil {
					t.Error(err)
				}
				finished(t, c.rounds, out)
			})
		}
	}
}

// finished checks what ibv_rc_pingpong said.
func finished(t *testing.T, rounds int, out string) {
	t.Helper()
	t.Log(out)
	if !strings.Contains(out, fmt.Sprintf("%d iters in ", rounds)) || strings.Contains(out, "invalid data") {
		t.Error("ibv_rc_pingpong has not gone well")
	}
}

// gid is the index of an address in the guest's table of GIDs.
func (g guest) gid(t *testing.T, a netip.Addr) string {
	t.Helper()
	return strings.TrimSpace(g.run(t, findGID("rxe0", a)))
}

// findGID is the command that prints the index of an address in a device's table of GIDs.
func findGID(device string, a netip.Addr) string {
	var groups []string
	bytes := a.As16()
	for i := 0; i < len(bytes); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", bytes[i], bytes[i+1]))
	}
	return fmt.Sprintf("cd /sys/class/infiniband/%s/ports/1/gids; grep -lx %s *", device, strings.Join(groups, ":"))
}
