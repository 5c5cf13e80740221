package mad

import "encoding/binary"

// Sizes of private data, in bytes.
const (
	SIDRREQPrivateData = 216
	SIDRREPPrivateData = 136
)

// A SIDRREQ asks which UD queue pair serves a service ID.
type SIDRREQ struct {
	TransactionID uint64
	RequestID     uint32
	PKey          uint16
	ServiceID     uint64
	PrivateData   [SIDRREQPrivateData]byte
}

// Append adds the datagram, Size bytes, to b.
func (m *SIDRREQ) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeSIDRREQ)
	binary.BigEndian.PutUint32(p[0:], m.RequestID)
	binary.BigEndian.PutUint16(p[4:], m.PKey)
	binary.BigEndian.PutUint64(p[8:], m.ServiceID)
	copy(p[16:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *SIDRREQ) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeSIDRREQ)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.RequestID = binary.BigEndian.Uint32(p[0:])
	m.PKey = binary.BigEndian.Uint16(p[4:])
	m.ServiceID = binary.BigEndian.Uint64(p[8:])
	copy(m.PrivateData[:], p[16:])
	return nil
}

// A SIDRStatus says what a SIDRREP is.
type SIDRStatus uint8

// The statuses (IBTA Vol. 1, 12.11.2).
const (
	SIDRValid              SIDRStatus = 0 // QPN and QKey are valid
	SIDRUnsupported        SIDRStatus = 1 // no such service
	SIDRReject             SIDRStatus = 2
	SIDRNoQP               SIDRStatus = 3
	SIDRRedirect           SIDRStatus = 4
	SIDRUnsupportedVersion SIDRStatus = 5
)

// A SIDRREP answers a SIDRREQ.
type SIDRREP struct {
	TransactionID uint64
	RequestID     uint32
	Status        SIDRStatus
	ARILength     uint8 // bytes of ARI that count
	QPN           uint32
	ServiceID     uint64
	QKey          uint32
	ARI           [72]byte
	PrivateData   [SIDRREPPrivateData]byte
}

// Append adds the datagram, Size bytes, to b.
func (m *SIDRREP) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeSIDRREP)
	binary.BigEndian.PutUint32(p[0:], m.RequestID)
	p[4] = byte(m.Status)
	p[5] = m.ARILength
	put24(p[8:], m.QPN)
	binary.BigEndian.PutUint64(p[12:], m.ServiceID)
	binary.BigEndian.PutUint32(p[20:], m.QKey)
	copy(p[24:96], m.ARI[:])
	copy(p[96:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *SIDRREP) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeSIDRREP)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.RequestID = binary.BigEndian.Uint32(p[0:])
	m.Status = SIDRStatus(p[4])
	m.ARILength = p[5]
	m.QPN = get24(p[8:])
	m.ServiceID = binary.BigEndian.Uint64(p[12:])
	m.QKey = binary.BigEndian.Uint32(p[20:])
	copy(m.ARI[:], p[24:96])
	copy(m.PrivateData[:], p[96:])
	return nil
}
