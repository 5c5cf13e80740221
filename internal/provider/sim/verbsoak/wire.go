package verbsoak

import (
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// CheckMemory implements trial.Host.
func (h *host) CheckMemory() { h.memory.check() }

// Arrives implements trial.Host.
func (h *host) Arrives(p *roce.Received) {
	if e := h.numbered(p.Header.DestQPN); e != nil {
		e.arrives(p)
	}
}

// Leaves implements trial.Host: a packet must be what the host's ends may send.
func (h *host) Leaves(flow *roce.Flow, p *roce.Packet) {
	r := h.run
	op := p.Header.Opcode
	if op == roce.UDSendOnly || op == roce.UDSendOnlyImm {
		if from := h.numbered(p.Header.SourceQPN); from != nil {
			from.begins(p.Header.PSN)
		}
		return
	}
	to := r.hosts[r.Fabric.HostAt(flow.Remote)].numbered(p.Header.DestQPN)
	if to == nil || to.peer == nil || to.peer.host != h {
		return
	}
	e := to.peer
	switch {
	case op.IsUC():
		e.begins(p.Header.PSN)
	case op.IsRequest():
		e.requests(&p.Header, p.Payload)
	case op == roce.Acknowledge && p.Header.Syndrome.IsACK() && to.out != nil && !e.gone && !e.cause && !to.cause:
		to.out.Acknowledged(e, &p.Header)
	}
}

// begins notes that a packet of a request is sent; in SQD nothing is that had not begun (IBTA Vol. 1, 10.3.1.5).
func (e *end) begins(psn uint32) *request {
	f, ok := e.run.flight[packetKey{e, psn}]
	if !ok {
		return nil
	}
	q := f.request
	if e.state == verbs.SendQueueDrain && !q.before && !q.over {
		e.run.Fail("a queue that drains begins nothing", "%v sends PSN %#x of %v", e, psn, q)
	}
	if e.state == verbs.Reset || e.state == verbs.Init || e.state == verbs.ReadyToReceive {
		e.run.Fail("requests are sent in RTS", "%v sends PSN %#x of %v in state %d", e, psn, q, e.state)
	}
	q.begun = true
	return q
}

// requests checks a request packet of a reliable connection.
func (e *end) requests(h *roce.Header, payload [][]byte) {
	r := e.run
	if e.gone {
		r.Fail("what is destroyed is silent", "%v sends PSN %#x", e, h.PSN)
	}
	switch kind := e.out.Sent(h, payload, int64(e.mtu)); {
	case kind == trial.Probe:
		return
	case kind == trial.Retransmission && r.plan.faultless():
		r.Fail("without faults nothing is sent again", "%v sends %#x again", e, h.PSN)
	}
	if e.begins(h.PSN) == nil {
		r.Fail("what is sent was posted", "%v sends PSN %#x", e, h.PSN)
	}
}
