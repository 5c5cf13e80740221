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
	CQError          uint64 // completion queues that overran
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

// counters are what an adapter counts as it goes.
type counters struct {
	connect, accept, connectFailure, connectionError, active, cqErrors atomic.Uint64
	inOctets, outOctets, inFrames, outFrames                           atomic.Uint64
	unknownQP, misdirected                                             atomic.Uint64

	// mu guards closed, and makes a queue pair's step from the table to closed
	// one step for those who sum up.
	mu     sync.Mutex
	closed rc.Counters // sum over the queue pairs that are no more
}

// retire removes a queue pair from the table and keeps what it counted.
func (a *Adapter) retire(qp *QP, counted rc.Counters) {
	a.counters.mu.Lock()
	defer a.counters.mu.Unlock()
	a.counters.closed = a.counters.closed.Plus(counted)
	a.qps.remove(qp)
}

// Counters reads the counters.
func (a *Adapter) Counters() Counters {
	c := &a.counters
	return Counters{
		Connect: c.connect.Load(), Accept: c.accept.Load(), ConnectFailure: c.connectFailure.Load(),
		ConnectionError: c.connectionError.Load(), ActiveConnection: c.active.Load(), CQError: c.cqErrors.Load(),
		RDMAInOctets: c.inOctets.Load(), RDMAOutOctets: c.outOctets.Load(),
		RDMAInFrames: c.inFrames.Load(), RDMAOutFrames: c.outFrames.Load(),
	}
}

// TransportCounters reads what the transport below counted, by name: sums over
// all queue pairs since the adapter was opened, and the carrier's own.
func (a *Adapter) TransportCounters() map[string]uint64 {
	a.counters.mu.Lock()
	sum := a.counters.closed
	a.qps.each(func(qp *QP) {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		sum = sum.Plus(qp.rc.Counters())
	})
	a.counters.mu.Unlock()
	m := map[string]uint64{
		"packets_sent": sum.Sent, "packets_received": sum.Received, "retransmitted": sum.Retransmitted,
		"duplicates": sum.Duplicates, "out_of_sequence": sum.OutOfSequence,
		"naks_sent": sum.NAKsSent, "naks_received": sum.NAKsReceived,
		"rnr_naks_sent": sum.RNRsSent, "rnr_naks_received": sum.RNRsReceived,
		"timeouts":  sum.Timeouts,
		"acks_sent": sum.AcknowledgementsSent, "acks_received": sum.AcknowledgementsReceived,
		"unknown_qp": a.counters.unknownQP.Load(), "misdirected": a.counters.misdirected.Load(),
	}
	for name, n := range a.carrier.Counters() {
		m[name] = n
	}
	return m
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
