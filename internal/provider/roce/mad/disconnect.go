package mad

import "encoding/binary"

// Sizes of private data, in bytes.
const (
	DREQPrivateData = 220
	DREPPrivateData = 224
)

// A DREQ ends a connection.
type DREQ struct {
	TransactionID     uint64
	LocalID, RemoteID uint32
	RemoteQPN         uint32 // 24 bits: the receiver's own QPN
	PrivateData       [DREQPrivateData]byte
}

// Append adds the datagram, Size bytes, to b.
func (m *DREQ) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeDREQ)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteID)
	put24(p[8:], m.RemoteQPN)
	copy(p[12:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *DREQ) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeDREQ)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.RemoteID = binary.BigEndian.Uint32(p[4:])
	m.RemoteQPN = get24(p[8:])
	copy(m.PrivateData[:], p[12:])
	return nil
}

// A DREP answers a DREQ.
type DREP struct {
	TransactionID     uint64
	LocalID, RemoteID uint32
	PrivateData       [DREPPrivateData]byte
}

// Append adds the datagram, Size bytes, to b.
func (m *DREP) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeDREP)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteID)
	copy(p[8:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *DREP) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeDREP)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.RemoteID = binary.BigEndian.Uint32(p[4:])
	copy(m.PrivateData[:], p[8:])
	return nil
}
