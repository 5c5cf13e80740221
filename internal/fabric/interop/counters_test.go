package interop

import (
	"context"
	"fmt"
	"maps"
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
	for _, name := range []string{"duplicate_request", "retry_exceeded_err", "retry_rnr_exceeded_err"} {
		if _, known := counters[name]; !known {
			t.Errorf("the guest does not count %s: %v", name, counters)
		}
	}
	t.Logf("the guest counts %v", counters)
	return counters
}

// tallies are rxe's counters of what is no error.
var tallies = []string{"sent_pkts", "rcvd_pkts", "rdma_sends", "rdma_recvs", "ack_deferred"}

// troubles are a node's counters of what is a trouble on a clean link.
var troubles = []string{"icrc_errors", "malformed", "misdirected", "out_of_sequence", "naks_sent", "naks_received",
	"rnr_naks_sent", "rnr_naks_received", "send_dropped", "send_too_big", "receive_overflow"}

// unsteady has the counters of both ends on a link that the kernel carries, where
// one packet now and then overtakes another, or is lost. veth has a queue for every
// processor: when the sender moves to another processor, its packets there may be
// first. The queue of the tap (500 frames) overflows while the emulated machine gets
// no processor. Comparing captures of both ends has shown either.
var unsteady = []string{"out_of_seq_request", "rcvd_seq_err", "duplicate_request", "completer_retry_err", "out_of_sequence",
	"naks_sent", "naks_received"}

// An observation has the counters of both ends, and the packets on the wire.
type observation struct {
	guest, node map[string]uint64
	seen        capture
}

func (s *setting) observe(t *testing.T) observation {
	guest := s.counts(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in, err := s.lab.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	o := observation{guest, in.Nodes[0].Transport, s.guest.captured(t)}
	t.Logf("the node counts %v", o.node)
	t.Logf("on the wire were %+v", o.seen)
	if l := in.Externals[0].Lost; l != 0 {
		t.Errorf("%d frames were lost on their way to or from the guest, which the relay waits for for two seconds", l)
	}
	if ndk := in.Nodes[0].Counters; ndk["Connect"] == 0 || ndk["Accept"] == 0 {
		t.Errorf("the node counts no connections: %v", ndk)
	}
	return o
}

// since returns what was added to an earlier observation.
func (o observation) since(before observation) observation {
	added := func(now, before map[string]uint64) map[string]uint64 {
		now = maps.Clone(now)
		for name := range now {
			now[name] -= before[name]
		}
		return now
	}
	return observation{added(o.guest, before.guest), added(o.node, before.node), o.seen.since(before.seen)}
}

// counters makes sure that neither end has seen anything wrong, and that each
// has seen whatever crossed the wire.
//
// An emulated machine that gets no processor for half a second asks again for what was
// answered in time, and drops what comes at once afterwards. So this counts if the subjects
// are tested several times, and have it each time.
func (s *setting) counters(t *testing.T) {
	const rounds = 3
	var before observation
	for round := 1; ; round++ {
		now := s.observe(t)
		slow := s.judge(t, now.since(before))
		if len(slow) == 0 {
			return
		}
		if round == rounds {
			t.Errorf("%s; as much in each of %d rounds; see %s", strings.Join(slow, "; "), rounds, s.guest.capture)
			return
		}
		t.Logf("round %d: %s", round, strings.Join(slow, "; "))
		before = now
		s.all(t)
	}
}

// judge complains of what is wrong, and returns what a slow machine may explain.
func (s *setting) judge(t *testing.T, o observation) (slow []string) {
	fine := tallies
	if s.plain {
		fine = slices.Concat(fine, unsteady)
	}
	// A probe is a duplicate to the guest, as is each packet that we send again.
	asked := uint64(o.seen.probes) + o.node["retransmitted"]
	for name, value := range o.guest {
		switch {
		case value == 0 || slices.Contains(fine, name):
		case name == "duplicate_request" && value <= asked:
		case name == "completer_retry_err":
			// rxe starts a timer with a request and does not stop it with the answer, but
			// lets it run out and sends again what is in flight just then (rxe_completer in
			// drivers/infiniband/sw/rxe/rxe_comp.c: "some timeouts are spurious"). That is
			// not on our account as long as we answer in time, so that nothing is sent
			// again that has waited for the whole timeout.
			if o.seen.late > 0 {
				slow = append(slow, fmt.Sprintf("the guest has sent %d packets again that waited for their answer for the whole timeout", o.seen.late))
			}
		default:
			t.Errorf("the guest counts %s: %d, want 0; see %s", name, value, s.guest.capture)
		}
	}
	for _, name := range troubles {
		if value, known := o.node[name]; value != 0 && !slices.Contains(fine, name) || !known {
			t.Errorf("the node counts %s: %d, want 0; see %s", name, value, s.guest.capture)
		}
	}
	if s.plain {
		return slow // see unsteady
	}
	// Each end has accepted what the other has sent, but for what was sent again and
	// arrived when its queue pair was gone.
	for _, n := range []struct {
		who         string
		got         uint64
		want, spare int
	}{
		{"the node has accepted", o.node["packets_received"], o.seen.fromGuest.roce(), o.seen.early + o.seen.late},
		{"the node has sent", o.node["packets_sent"], o.seen.toGuest.roce(), 0},
		{"the guest has sent", o.guest["sent_pkts"], o.seen.fromGuest.roce(), 0},
	} {
		if got := int(n.got); got > n.want || got < n.want-n.spare {
			t.Errorf("%s %d RoCE packets, %s holds %d", n.who, got, s.guest.capture, n.want)
		}
	}
	got, want := o.guest["rcvd_pkts"], uint64(o.seen.toGuest.roce())
	if got > want {
		t.Errorf("the guest has accepted %d RoCE packets, %s holds %d", got, s.guest.capture, want)
	}
	if got+asked < want {
		slow = append(slow, fmt.Sprintf("the guest has accepted %d RoCE packets of %d", got, want))
	}
	return slow
}

// explained are rxe's counters of what loss and reordering lead to: what arrives
// twice, or early; that it asks for it, or is asked; and that it waits in vain.
var explained = []string{"duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err"}

// endured makes sure that nothing but loss and reordering was counted, and that
// no retry limit was reached.
func (s *setting) endured(t *testing.T) {
	for name, value := range s.counts(t) {
		if value != 0 && !slices.Contains(tallies, name) && !slices.Contains(explained, name) {
			t.Errorf("the guest counts %s: %d, want 0; see %s", name, value, s.guest.capture)
		}
	}
}
