package topology

import (
	"fmt"
	"slices"
)

// Counters are the names of all counters that a node has: those of
// NDIS_NDK_PERFORMANCE_COUNTERS (ndkpi.md 3.5), and those of the transport below, which
// ndklab adds.
func Counters() []string { return slices.Concat(ndisCounters, transportCounters, pauseCounters()) }

// A PauseCounter is one of those that an adapter has for each priority of its pfc.
type PauseCounter string

// The counters, under the names that mlx5 drivers have for them. Durations are in microseconds.
const (
	RxPause           PauseCounter = "rx_prio%d_pause"            // PFC frames received, those that end a pause included
	RxPauseDuration   PauseCounter = "rx_prio%d_pause_duration"   // how long it was paused
	RxPauseTransition PauseCounter = "rx_prio%d_pause_transition" // how often it went on
	TxPause           PauseCounter = "tx_prio%d_pause"            // PFC frames sent
	TxPauseDuration   PauseCounter = "tx_prio%d_pause_duration"   // how long it had its neighbours pause
	RxDiscards        PauseCounter = "rx_prio%d_discards"         // packets dropped for want of headroom
)

// Of returns the counter's name for a priority.
func (c PauseCounter) Of(priority uint32) string { return fmt.Sprintf(string(c), priority) }

// pauseCounters returns those of all priorities.
func pauseCounters() (names []string) {
	for priority := range uint32(8) {
		for _, c := range []PauseCounter{RxPause, RxPauseDuration, RxPauseTransition, TxPause, TxPauseDuration, RxDiscards} {
			names = append(names, c.Of(priority))
		}
	}
	return names
}

var (
	ndisCounters = []string{
		"Connect", "Accept", "ConnectFailure", "ConnectionError", "ActiveConnection", "CQError",
		"RDMAInOctets", "RDMAOutOctets", "RDMAInFrames", "RDMAOutFrames",
	}
	transportCounters = []string{
		"packets_sent", "packets_received", "retransmitted", "spurious_retransmissions", "duplicates", "out_of_sequence", "naks_sent", "naks_received",
		"rnr_naks_sent", "rnr_naks_received", "timeouts", "acks_sent", "acks_received", "unknown_qp", "misdirected", "cnps_received",
		"early_dropped", "bad_length",
		// Of adapters with congestion control alone.
		"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored", "roce_slow_restart_cnps", "packet_seq_err", "local_ack_timeout_err",
		"super_packets_sent", "super_packets_received", "send_dropped", "send_too_big", "segmentation_refused", "receive_overflow",
		"icrc_errors", "malformed",
	}
)

// counterName is the name of a counter.
var counterName = manyWords(Counters)
