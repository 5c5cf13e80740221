package soak

import (
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// CheckMemory implements trial.Host.
func (l *instance) CheckMemory() { l.memory.Check() }

// Leaves implements trial.Host: a packet must be what its end of the connection may send.
func (l *instance) Leaves(flow *roce.Flow, p *roce.Packet) {
	h := &p.Header
	if h.DestQPN == mad.QPN {
		return
	}
	l.frames++
	at := l.run.hosts[l.run.Fabric.HostAt(flow.Remote)].instance
	if l.dead || at == nil {
		return
	}
	to := at.endNumbered(h.DestQPN)
	if to == nil || !to.paired() || to.peer.instance != l || flow.Local != to.remote {
		return // not a connection that both ends know of, or no more
	}
	switch {
	case h.Opcode.IsRequest():
		to.peer.out.Sent(h, p.Payload, to.mtu)
	case h.Opcode == roce.Acknowledge && h.Syndrome.IsACK():
		to.out.Acknowledged(to.peer, h)
	}
}

// Arrives implements trial.Host.
func (l *instance) Arrives(p *roce.Received) {
	if e := l.endNumbered(p.Header.DestQPN); e != nil && e.paired() && p.Flow.Remote == e.remote {
		e.peer.out.Arrived(&p.Header, e.mtu)
	}
}
