package topology

import "slices"

// Counters are the names of all counters that a node has: those of
// NDIS_NDK_PERFORMANCE_COUNTERS (ndkpi.md 3.5), and those of the transport below, which
// ndklab adds.
func Counters() []string { return slices.Concat(ndisCounters, transportCounters) }

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
