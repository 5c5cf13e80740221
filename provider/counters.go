package provider

import (
	"maps"

	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// Counters are NDIS_NDK_PERFORMANCE_COUNTERS without the reserved ones (ndkpi.md
// 3.5).
type Counters struct {
	Connect          uint64 // outbound connections established
	Accept           uint64 // inbound connections established
	ConnectFailure   uint64 // attempts that failed, both ways; not those that met no listener
	ConnectionError  uint64 // established connections that hit an error before a disconnect
	ActiveConnection uint64 // connections that are up now
	CQError          uint64 // completion queues that overran, or failed with the device
	RDMAInOctets     uint64 // from the Ethernet header to the ICRC
	RDMAOutOctets    uint64
	RDMAInFrames     uint64
	RDMAOutFrames    uint64
}

// Map returns the counters under their NDIS names.
func (c Counters) Map() map[string]uint64 {
	return map[string]uint64{
		"Connect": c.Connect, "Accept": c.Accept, "ConnectFailure": c.ConnectFailure,
		"ConnectionError": c.ConnectionError, "ActiveConnection": c.ActiveConnection, "CQError": c.CQError,
		"RDMAInOctets": c.RDMAInOctets, "RDMAOutOctets": c.RDMAOutOctets,
		"RDMAInFrames": c.RDMAInFrames, "RDMAOutFrames": c.RDMAOutFrames,
	}
}

// set returns the counters at their places in NDIS_NDK_PERFORMANCE_COUNTERS; those in
// between are reserved and 0 (NDK-CNT-07).
func (c *Counters) set() (set [30]uint64) {
	set[0], set[1], set[2], set[3], set[4] = c.Connect, c.Accept, c.ConnectFailure, c.ConnectionError, c.ActiveConnection
	set[25] = c.CQError
	set[26], set[27], set[28], set[29] = c.RDMAInOctets, c.RDMAOutOctets, c.RDMAInFrames, c.RDMAOutFrames
	return set
}

// counters holds this process's share of the device's NDIS counters.
type counters struct{ own *sharing.Counters }

// CountConnection counts a connection of another object model that is made: by Connect if
// it is ours, else by Accept.
func (c counters) CountConnection(ours bool) {
	if ours {
		c.own.Connect.Add(1)
	} else {
		c.own.Accept.Add(1)
	}
	c.own.Active.Add(1)
}

// CountDisconnection counts the end of such a connection.
func (c counters) CountDisconnection() { c.own.Active.Add(^uint64(0)) }

// CountConnectFailure counts that such a connection has not come about.
func (c counters) CountConnectFailure() { c.own.ConnectFailure.Add(1) }

// Counters reads the counters, of all processes that share the device.
func (m *Miniport) Counters() (sum Counters) {
	for c := range m.ledger.AllCounters() {
		sum.Connect += c.Connect.Load()
		sum.Accept += c.Accept.Load()
		sum.ConnectFailure += c.ConnectFailure.Load()
		sum.ConnectionError += c.ConnectionError.Load()
		sum.ActiveConnection += c.Active.Load()
		sum.CQError += c.CQErrors.Load()
		sum.RDMAInOctets += c.InOctets.Load()
		sum.RDMAOutOctets += c.OutOctets.Load()
		sum.RDMAInFrames += c.InFrames.Load()
		sum.RDMAOutFrames += c.OutFrames.Load()
	}
	return sum
}

// A SendState says how a queue pair may send now, and counts what bears on that.
type SendState = transport.SendState

// SendStates returns those of the queue pairs of this process that are connected, in the order of their numbers. It
// changes nothing.
func (m *Miniport) SendStates() []SendState { return m.transport.SendStates() }

// TransportCounters reads what the transport below counted, by name: sums over
// all queue pairs of this process since the device was started, and the carrier's
// own.
func (m *Miniport) TransportCounters() map[string]uint64 {
	return transportCounters(m.transport, m.manager, m.carrier)
}

// NoTransportCounters returns what TransportCounters are of an adapter that has done nothing and has no congestion control,
// with a carrier that has done nothing, either.
func NoTransportCounters(carrier Carrier) map[string]uint64 {
	return transportCounters(new(transport.Device), new(gsi.Manager), carrier)
}

func transportCounters(device *transport.Device, manager *gsi.Manager, carrier Carrier) map[string]uint64 {
	sum := device.Counters()
	named := map[string]uint64{
		"packets_sent": sum.Sent, "packets_received": sum.Received, "retransmitted": sum.Retransmitted,
		"spurious_retransmissions": sum.Spurious,
		"duplicates":               sum.Duplicates, "out_of_sequence": sum.OutOfSequence,
		"naks_sent": sum.NAKsSent, "naks_received": sum.NAKsReceived,
		"rnr_naks_sent": sum.RNRsSent, "rnr_naks_received": sum.RNRsReceived,
		"timeouts":  sum.Timeouts,
		"acks_sent": sum.AcknowledgementsSent, "acks_received": sum.AcknowledgementsReceived,
		"unknown_qp":    device.UnknownQP.Load(),
		"misdirected":   device.Misdirected.Load() + manager.Foreign.Load() + manager.Strays.Load(),
		"cnps_received": device.CNPs.Load(),
		"early_dropped": sum.EarlyDropped, "bad_length": sum.BadLengths + manager.BadLength.Load(),
	}
	maps.Copy(named, device.CongestionCounters(&sum))
	maps.Copy(named, carrier.Counters())
	return named
}
