package metrics

import (
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	dto "github.com/prometheus/client_model/go"
)

// device and port are the labels of each node's adapter, under the names that programs in the node
// find it by.
const (
	device = "ndk0"
	port   = "1"
)

// adaptersOf returns the nodes of a lab that have an adapter and have answered.
func adaptersOf(o *report.Observation, lab *dto.LabelPair) (all []subject[*report.ObservedNode]) {
	device, port := pair("device", device), pair("port", port)
	for i := range o.Nodes {
		if n := &o.Nodes[i]; n.InUse != nil {
			all = append(all, subject[*report.ObservedNode]{n, []*dto.LabelPair{device, lab, pair("node", n.Name), port}})
		}
	}
	return all
}

var adapterLabels = []string{"device", "lab", "node", "port"}

// adapterRows have, first, what node_exporter has (collector/infiniband_linux.go, version 1.12), of the counters of
// ports and those of mlx5; then the other counters of NDK and of the transport, as `ndklab counters` explains them.
var adapterRows = []row[*report.ObservedNode]{
	ndk("node_infiniband_port_data_received_bytes_total", "RDMAInOctets", "bytes", "RoCE packets received, from the Ethernet header to the ICRC"),
	ndk("node_infiniband_port_data_transmitted_bytes_total", "RDMAOutOctets", "bytes", "RoCE packets sent, from the Ethernet header to the ICRC"),
	ndk("node_infiniband_port_packets_received_total", "RDMAInFrames", "packets", "RoCE packets received"),
	ndk("node_infiniband_port_packets_transmitted_total", "RDMAOutFrames", "packets", "RoCE packets sent"),
	transport("node_infiniband_port_discards_received_total", "packets", "Packets lost to a full receive buffer", "receive_overflow"),
	transport("node_infiniband_port_discards_transmitted_total", "packets", "Packets that were not sent", "send_dropped"),
	transport("node_infiniband_port_errors_received_total", "packets", "Packets received that are not RoCE, or longer or shorter than their kind and the path's MTU allow", "malformed", "bad_length"),
	transport("node_infiniband_rx_icrc_encapsulated_errors_total", "packets", "Packets received that were changed on the way, as the ICRC shows", "icrc_errors"),
	transport("node_infiniband_duplicate_requests_packets_total", "packets", "Requests received again", "duplicates"),
	transport("node_infiniband_out_of_sequence_packets_received_total", "packets", "Packets received ahead of one that was missing", "out_of_sequence"),
	transport("node_infiniband_packet_sequence_errors_total", "packets", "NAKs received that say that a packet is missing", "naks_received"),
	transport("node_infiniband_rnr_nak_retry_packets_received_total", "packets", "NAKs received that say that no receive is posted", "rnr_naks_received"),
	transport("node_infiniband_local_ack_timeout_errors_total", "timeouts", "How often an acknowledgement did not come in time", "timeouts"),
	transport("node_infiniband_np_ecn_marked_roce_packets_received_total", "packets", "Packets received with the mark of congestion (ECN); of adapters with congestion control", "np_ecn_marked_roce_packets"),
	transport("node_infiniband_np_cnp_packets_sent_total", "packets", "Congestion notifications (CNP) sent; of adapters with congestion control", "np_cnp_sent"),
	transport("node_infiniband_rp_cnp_packets_handled_total", "packets", "Congestion notifications that slowed a queue pair down; of adapters with congestion control", "rp_cnp_handled"),
	transport("node_infiniband_rp_cnp_ignored_packets_received_total", "packets", "Congestion notifications without effect; of adapters with congestion control", "rp_cnp_ignored"),
	transport("node_infiniband_roce_slow_restart_cnps_total", "packets", "How often lost packets slowed a queue pair down as a CNP does; of adapters with slow_restart", "roce_slow_restart_cnps"),

	ndk("ndklab_adapter_connects_total", "Connect", "connections", "Outbound connections established"),
	ndk("ndklab_adapter_accepts_total", "Accept", "connections", "Inbound connections established"),
	ndk("ndklab_adapter_connect_failures_total", "ConnectFailure", "connections", "Connections that failed to be established, both ways"),
	ndk("ndklab_adapter_connection_errors_total", "ConnectionError", "connections", "Established connections that met an error before they were disconnected"),
	ndk("ndklab_adapter_cq_errors_total", "CQError", "completion queues", "Completion queues that overran, or failed with the device"),
	{
		Metric: Metric{"ndklab_adapter_active_connections", Gauge, "connections", adapterLabels, "Connections that are up"},
		value:  func(n *report.ObservedNode) (float64, bool) { return counter(n.Counters, "ActiveConnection") },
	},
	{
		Metric: Metric{"ndklab_adapter_objects", Gauge, "objects", append(adapterLabels[:4:4], "object"), "Objects in use, by kind: qp, cq, mr, pd, mw or srq"},
		values: func(n *report.ObservedNode, put func(float64, ...*dto.LabelPair)) {
			for i, count := range objects(n.InUse) {
				put(float64(count), objectLabels[i])
			}
		},
	},
	{
		Metric: Metric{"ndklab_connections", Gauge, "connections", append(adapterLabels[:4:4], "state", "transport", "type"),
			"Connections and queue pairs by type (Connection, or QueuePair: of verbs, not connected by connection management), state and, of verbs, transport (RC, UC or UD)"},
		values: func(n *report.ObservedNode, put func(float64, ...*dto.LabelPair)) {
			for _, c := range n.Connections {
				put(float64(c.Count), pair("state", c.State), pair("transport", c.Transport), pair("type", c.Type))
			}
		},
	},

	transport("ndklab_transport_packets_received_total", "packets", "RoCE packets received, those of the connection manager too", "packets_received"),
	transport("ndklab_transport_packets_sent_total", "packets", "RoCE packets sent, those sent again and those of the connection manager too", "packets_sent"),
	transport("ndklab_transport_super_packets_received_total", "super-packets", "How often the kernel gave several packets at once", "super_packets_received"),
	transport("ndklab_transport_super_packets_sent_total", "super-packets", "How often the kernel took several packets at once", "super_packets_sent"),
	transport("ndklab_transport_segmentation_refused_total", "super-packets", "How often the kernel refused to take several packets", "segmentation_refused"),
	transport("ndklab_transport_acks_received_total", "packets", "Acknowledgements received, selective ones too", "acks_received"),
	transport("ndklab_transport_acks_sent_total", "packets", "Acknowledgements sent, selective ones too", "acks_sent"),
	transport("ndklab_transport_naks_sent_total", "packets", "NAKs sent that say that a packet is missing", "naks_sent"),
	transport("ndklab_transport_rnr_naks_sent_total", "packets", "NAKs sent that say that no receive is posted", "rnr_naks_sent"),
	transport("ndklab_transport_retransmitted_packets_total", "packets", "Request packets sent again", "retransmitted"),
	transport("ndklab_transport_spurious_retransmissions_total", "packets", "Those of them that the peer had already", "spurious_retransmissions"),
	transport("ndklab_transport_cnps_received_total", "packets", "Congestion notifications of peers, of whatever effect", "cnps_received"),
	transport("ndklab_transport_early_dropped_packets_total", "packets", "Packets ahead of one that was missing, dropped for want of room in the reorder_buffer", "early_dropped"),
	transport("ndklab_transport_unknown_qp_packets_total", "packets", "Packets dropped whose number no queue pair has", "unknown_qp"),
	transport("ndklab_transport_misdirected_packets_total", "packets", "Packets dropped that are not from the queue pair's peer, or of another partition or kind", "misdirected"),
	transport("ndklab_transport_send_too_big_packets_total", "packets", "Packets that were not sent because they are above the MTU", "send_too_big"),
}

// objects returns how many objects of each kind are in use, in the order of objectLabels.
func objects(u *provider.Usage) [6]uint32 {
	return [6]uint32{u.Qps, u.Cqs, u.Mrs, u.Pds, u.Mws, u.Srqs}
}

var objectLabels = labelled("object", "qp", "cq", "mr", "pd", "mw", "srq")

// counter returns a counter of one of the sets that a node has.
func counter(set map[string]uint64, name string) (float64, bool) {
	n, ok := set[name]
	return float64(n), ok
}

// ndk is a row of a counter of NDK.
func ndk(name, of, unit, help string) row[*report.ObservedNode] {
	return row[*report.ObservedNode]{
		Metric: Metric{name, Counter, unit, adapterLabels, help},
		value:  func(n *report.ObservedNode) (float64, bool) { return counter(n.Counters, of) },
	}
}

// transport is a row of counters of the transport, which are added up. Those that an adapter does not have
// are left out.
func transport(name, unit, help string, of ...string) row[*report.ObservedNode] {
	return row[*report.ObservedNode]{
		Metric: Metric{name, Counter, unit, adapterLabels, help},
		value: func(n *report.ObservedNode) (sum float64, found bool) {
			for _, counted := range of {
				value, ok := counter(n.Transport, counted)
				sum, found = sum+value, found || ok
			}
			return sum, found
		},
	}
}
