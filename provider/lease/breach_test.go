package lease

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/provider"
)

// TestBreach: a process that says what no device says loses its share, and the owner's log
// has the reason. Nothing that it has said is kept.
func TestBreach(t *testing.T) {
	zoned := netip.MustParseAddrPort("[fe80::1%" + strings.Repeat("z", 1000) + "]:1")
	for name, test := range map[string]struct {
		say    func(conn *control.Conn, i int) error
		most   int // notices
		reason string
	}{
		"another's connection": {func(c *control.Conn, _ int) error {
			return noticeConnection.Send(c, cm.Record{ID: 2 << 26, State: cm.Connected})
		}, 1, "not of its share"},
		"an address with a zone": {func(c *control.Conn, _ int) error {
			return noticeConnection.Send(c, cm.Record{ID: 1 << 26, State: cm.Connected, Remote: zoned})
		}, 1, "a zone"},
		"connections without end": {func(c *control.Conn, i int) error {
			// No peer is to be told of the end of one that the CM does not manage.
			return noticeConnection.Send(c, cm.Record{ID: cm.ID(1<<26 + 1 + i), State: cm.Connected, Unmanaged: true})
		}, 10 + moreConnections + 1, "1035 connections"},
		"many errors at once": {func(c *control.Conn, _ int) error {
			return NoticeQPErrors.Send(c, make([]provider.QPError, errorsAtOnce+2))
		}, 1, "18 errors"},
		"a long error": {func(c *control.Conn, _ int) error {
			return NoticeQPErrors.Send(c, []provider.QPError{{Reason: strings.Repeat("x", longestReason+1)}})
		}, 1, "not of a device's making"},
		"a long message": {func(c *control.Conn, _ int) error {
			return noticeCounters.Send(c, map[string]uint64{strings.Repeat("x", longestMessage): 1})
		}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(1)
			cfg.Capabilities.MaxQpCount = 10
			logged := make(chan string, 16)
			cfg.Log = func(message string) { logged <- message }
			s := serving(t, cfg)
			conn := dial(t, func(context.Context, *control.Request) (any, error) { return nil, nil })
			if _, err := methodLease.Call(patient(t), conn, leaseRequest{}); err != nil {
				t.Fatal(err)
			}
			for i := range test.most {
				// Messages that come behind the breach reach nobody.
				_ = test.say(conn, i)
			}
			select {
			case <-conn.Done():
			case <-time.After(patience):
				t.Fatal("the lease goes on")
			}
			for test.reason != "" {
				select {
				case line := <-logged:
					if strings.Contains(line, "is ended") && strings.Contains(line, test.reason) {
						test.reason = ""
					}
				case <-time.After(patience):
					t.Fatal("the log does not say why")
				}
			}
			s.awaitShares(t, uint32(os.Getpid()))
		})
	}
}

// TestCountersWithoutEnd: names that no transport has are not kept.
func TestCountersWithoutEnd(t *testing.T) {
	s := serving(t, config(1))
	conn := dial(t, func(context.Context, *control.Request) (any, error) { return nil, nil })
	if _, err := methodLease.Call(patient(t), conn, leaseRequest{}); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		counted := map[string]uint64{"packets_sent": uint64(i)}
		for j := range 100 {
			counted[fmt.Sprint("invented", i, " ", j)] = 1
		}
		if err := noticeCounters.Send(conn, counted); err != nil {
			t.Fatal(err)
		}
	}
	nothing := map[string]uint64{}
	if err := control.NewProcedure[map[string]uint64]("counters").Call(patient(t), conn, nothing); err != nil { // until all are handled
		t.Fatal(err)
	}
	conn.Close()
	s.awaitShares(t, uint32(os.Getpid())) // by then its last counters are taken
	sum := s.TransportCounters(patient(t))
	if len(sum) > len(s.countable) || sum["packets_sent"] != 999 {
		t.Errorf("%d counters, of which %d exist; packets_sent is %d", len(sum), len(s.countable), sum["packets_sent"])
	}
}
