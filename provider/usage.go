package provider

import "github.com/ndklab/ndklab/internal/provider/sharing"

// Usage says how much of a device is in use: numbers of objects, of all processes
// that share it.
type Usage struct {
	Instances     int    `json:"-"` // which is not an object that has a limit
	Qps           uint32 `json:"Qp"`
	Cqs           uint32 `json:"Cq"`
	Mrs           uint32 `json:"Mr"`
	Pds           uint32 `json:"Pd"`
	InboundReads  uint32 `json:"InboundRead"` // that the connections may have in progress
	OutboundReads uint32 `json:"OutboundRead"`
	Mws           uint32 `json:"Mw"`
	Srqs          uint32 `json:"Srq"`
}

// Usage counts what is in use. Of objects that are being made and closed
// meanwhile some may be counted.
func (m *Miniport) Usage() Usage {
	held := func(r sharing.Resource) uint32 { return uint32(m.ledger.SumOf(r)) }
	return Usage{
		Instances: int(held(sharing.Instances)),
		Qps:       held(sharing.QPs), Cqs: held(sharing.CQs), Mrs: held(sharing.MRs), Pds: held(sharing.PDs),
		Mws: held(sharing.MWs), Srqs: held(sharing.SRQs),
		InboundReads: held(sharing.InboundReads), OutboundReads: held(sharing.OutboundReads),
	}
}

// DefaultReceiveBuffer is Config.ReceiveBuffer where none is set, in bytes.
const DefaultReceiveBuffer = 4 << 20

// A ReceiveBuffer holds the bytes of packets that may wait at each address of a device: as
// many as its Config asked for, and as its carrier has room for. The carrier may have room
// for more than was asked for, which does not count.
type ReceiveBuffer struct {
	Asked   uint32 `json:"asked"`
	Granted uint32 `json:"granted"`
}

func newReceiveBuffer(asked uint32, c Carrier) ReceiveBuffer {
	if asked == 0 {
		asked = DefaultReceiveBuffer
	}
	return ReceiveBuffer{asked, uint32(min(int64(asked), int64(c.ReceiveBuffer())))}
}

// ReceiveBuffer returns the device's receive buffer.
func (m *Miniport) ReceiveBuffer() ReceiveBuffer { return m.receiveBuffer }
