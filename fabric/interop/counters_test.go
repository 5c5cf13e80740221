package interop

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// counts are rxe's counters.
func (s *setting) counts(t *testing.T) map[string]uint64 {
	t.Helper()
	// link rxe0/1 NAME VALUE NAME VALUE...
	out := s.guest.run(t, "rdma statistic show link rxe0/1")
	words := strings.Fields(out)
	if len(words) < 4 || len(words)%2 != 0 {
		t.Fatalf("counters: %q", out)
	}
	counters := map[string]uint64{}
	for i := 2; i < len(words); i += 2 {
		value, err := strconv.ParseUint(words[i+1], 10, 64)
		if err != nil {
			t.Fatalf("counters: %q: %v", out, err)
		}
		counters[words[i]] = value
	}
	t.Logf("the guest counts %v", counters)
	return counters
}

// harmless are rxe's counters of what is no error. A duplicate is a packet of ours
// that was sent again though it had arrived: the emulated guest is slower at times
// than our timers expect (seen: READ requests sent again after 2 to 5 ms, and once
// 33 packets of a WRITE).
var harmless = []string{"sent_pkts", "rcvd_pkts", "rdma_sends", "rdma_recvs", "ack_deferred", "duplicate_request"}

// troubles are ours of what is one on a clean link. For what was sent again see
// harmless; the answers to that, which may come when the QP is gone, are none.
var troubles = []string{"icrc_errors", "malformed", "misdirected", "naks_sent", "naks_received",
	"send_dropped", "send_too_big", "receive_overflow"}

// counters makes sure that neither end has seen anything wrong.
func (s *setting) counters(t *testing.T) {
	for name, value := range s.counts(t) {
		if value != 0 && !slices.Contains(harmless, name) {
			t.Errorf("the guest counts %s: %d", name, value)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in, err := s.lab.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	us := in.Nodes[0]
	t.Logf("the node sent %d packets again, after %d timeouts", us.Transport["retransmitted"], us.Transport["timeouts"])
	for _, name := range troubles {
		if us.Transport[name] != 0 {
			t.Errorf("the node counts %s: %d", name, us.Transport[name])
		}
	}
	if us.Counters["Connect"] == 0 || us.Counters["Accept"] == 0 {
		t.Errorf("the node counts no connections: %v", us.Counters)
	}
	if l := in.Externals[0].Lost; l != 0 {
		t.Errorf("the relay lost %d frames", l)
	}
}

// endured makes sure that no retry limit was reached however much was lost.
func (s *setting) endured(t *testing.T) {
	counters := s.counts(t)
	for _, name := range []string{"retry_exceeded_err", "retry_rnr_exceeded_err"} {
		if value, known := counters[name]; value != 0 || !known {
			t.Errorf("the guest counts %s: %d", name, value)
		}
	}
}
