package provider

import (
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
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

// Map is the counters under their NDIS names.
func (c Counters) Map() map[string]uint64 {
	return map[string]uint64{
		"Connect": c.Connect, "Accept": c.Accept, "ConnectFailure": c.ConnectFailure,
		"ConnectionError": c.ConnectionError, "ActiveConnection": c.ActiveConnection, "CQError": c.CQError,
		"RDMAInOctets": c.RDMAInOctets, "RDMAOutOctets": c.RDMAOutOctets,
		"RDMAInFrames": c.RDMAInFrames, "RDMAOutFrames": c.RDMAOutFrames,
	}
}

// set is the counters at their places in NDIS_NDK_PERFORMANCE_COUNTERS; those in
// between are reserved and 0 (NDK-CNT-07).
func (c *Counters) set() (set [30]uint64) {
	set[0], set[1], set[2], set[3], set[4] = c.Connect, c.Accept, c.ConnectFailure, c.ConnectionError, c.ActiveConnection
	set[25] = c.CQError
	set[26], set[27], set[28], set[29] = c.RDMAInOctets, c.RDMAOutOctets, c.RDMAInFrames, c.RDMAOutFrames
	return set
}

// counters are what a device counts as it goes: its share of the NDIS counters,
// and others.
type counters struct {
	*shareCounters
	unknownQP, misdirected, cnps atomic.Uint64
	badLength                    atomic.Uint64 // of management datagrams
	strays                       atomic.Uint64 // likewise: cm.Endpoint.Strays

	// mu guards closed, and makes a queue pair's step from the table to closed
	// one step for those who sum up.
	mu     sync.Mutex
	closed rc.Counters // sum over the queue pairs that are no more
}

// retire removes a queue pair from the table and keeps what it counted.
func (m *Miniport) retire(qp *QP, counted rc.Counters) {
	m.counters.mu.Lock()
	defer m.counters.mu.Unlock()
	m.counters.closed = m.counters.closed.Plus(counted)
	m.qps.remove(qp)
}

// Counters reads the counters, of all processes that share the device.
func (m *Miniport) Counters() Counters { return m.ledger.sum() }

// TransportCounters reads what the transport below counted, by name: sums over
// all queue pairs of this process since the device was started, and the carrier's
// own.
func (m *Miniport) TransportCounters() map[string]uint64 {
	m.counters.mu.Lock()
	sum := m.counters.closed
	m.qps.each(func(qp *QP) {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		sum = sum.Plus(qp.rc.Counters())
	})
	m.counters.mu.Unlock()
	named := map[string]uint64{
		"packets_sent": sum.Sent, "packets_received": sum.Received, "retransmitted": sum.Retransmitted,
		"spurious_retransmissions": sum.Spurious,
		"duplicates":               sum.Duplicates, "out_of_sequence": sum.OutOfSequence,
		"naks_sent": sum.NAKsSent, "naks_received": sum.NAKsReceived,
		"rnr_naks_sent": sum.RNRsSent, "rnr_naks_received": sum.RNRsReceived,
		"timeouts":  sum.Timeouts,
		"acks_sent": sum.AcknowledgementsSent, "acks_received": sum.AcknowledgementsReceived,
		"unknown_qp": m.counters.unknownQP.Load(), "misdirected": m.counters.misdirected.Load() + m.counters.strays.Load(),
		"cnps_received": m.counters.cnps.Load(),
		"early_dropped": sum.EarlyDropped, "bad_length": sum.BadLengths + m.counters.badLength.Load(),
	}
	for name, n := range m.carrier.Counters() {
		named[name] = n
	}
	return named
}

// frameOctets is the length of the Ethernet frame around a packet: headers, ICRC
// and padding, without preamble and frame check sequence, which belong to layer
// 1 and to the hardware.
func frameOctets(flow *roce.Flow, opcode roce.Opcode, payload int) int {
	const ethernet, ipv4, ipv6, udp, icrc = 14, 20, 40, 8, 4
	ip := ipv4
	if flow.Local.Is6() {
		ip = ipv6
	}
	return ethernet + ip + udp + opcode.HeaderLen() + (payload+3)&^3 + icrc
}
