package mad

import (
	"encoding/binary"
	"net/netip"
)

// Sizes of private data, in bytes.
const (
	REQPrivateData = 92 // of which rdma_cm takes IPHeaderSize
	REPPrivateData = 196
	RTUPrivateData = 224
	MRAPrivateData = 222
)

// An ECE names the extensions of a vendor's own in a REQ or REP (enhanced
// connection establishment; in Linux since 5.9): whose they are and, in the
// attribute modifier of the datagram's header, which. Zero says that there are
// none. Linux passes both to its users and acts on neither; librdmacm answers a
// REQ with the vendor that it names and the options of its own device.
type ECE struct {
	Vendor  uint32 // 24 bits, an OUI
	Options uint32
}

// A REQ asks for a connection.
type REQ struct {
	TransactionID         uint64
	LocalID               uint32 // the sender's communication ID
	ServiceID             uint64
	GUID                  uint64 // the sender's channel adapter
	QKey                  uint32 // 0 for RC
	QPN                   uint32 // 24 bits
	ResponderResources    uint8  // READs and atomics that the sender can answer at once
	InitiatorDepth        uint8  // and those that it wants to have outstanding
	RemoteResponseTimeout Timeout
	TransportType         uint8 // 2 bits: 0 is RC
	FlowControl           bool  // end-to-end
	StartingPSN           uint32
	LocalResponseTimeout  Timeout
	RetryCount            uint8  // 3 bits
	PKey                  uint16 // 0xFFFF is the default partition
	MTU                   uint8  // 4 bits: code of the path MTU, 1 (256) to 5 (4096)
	RNRRetryCount         uint8  // 3 bits, 7 is for ever; for the receiver's sends
	MaxCMRetries          uint8  // 4 bits
	SRQ                   bool
	ExtendedTransport     uint8 // 3 bits
	Primary               Path
	Alternate             Path // all zero: none
	ECE                   ECE
	PrivateData           [REQPrivateData]byte
}

// A Path is a REQ's path record.
type Path struct {
	LocalLID, RemoteLID uint16
	// LocalGID and RemoteGID are IP addresses: IPv4 ones stand for the
	// IPv4-mapped GID, the zero Addr for 16 zero bytes.
	LocalGID, RemoteGID netip.Addr
	FlowLabel           uint32 // 20 bits
	PacketRate          uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          Timeout
}

const pathSize = 44

func (q *Path) put(p []byte) {
	binary.BigEndian.PutUint16(p[0:], q.LocalLID)
	binary.BigEndian.PutUint16(p[2:], q.RemoteLID)
	putGID(p[4:20], q.LocalGID)
	putGID(p[20:36], q.RemoteGID)
	binary.BigEndian.PutUint32(p[36:], q.FlowLabel<<12|uint32(q.PacketRate&0x3F))
	p[40] = q.TrafficClass
	p[41] = q.HopLimit
	p[42] = q.SL<<4 | bit(q.SubnetLocal, 3)
	p[43] = byte(q.AckTimeout) << 3
}

func (q *Path) get(p []byte) {
	word := binary.BigEndian.Uint32(p[36:])
	*q = Path{
		LocalLID:     binary.BigEndian.Uint16(p[0:]),
		RemoteLID:    binary.BigEndian.Uint16(p[2:]),
		LocalGID:     getGID(p[4:20]),
		RemoteGID:    getGID(p[20:36]),
		FlowLabel:    word >> 12,
		PacketRate:   uint8(word & 0x3F),
		TrafficClass: p[40],
		HopLimit:     p[41],
		SL:           p[42] >> 4,
		SubnetLocal:  p[42]&8 != 0,
		AckTimeout:   Timeout(p[43] >> 3),
	}
}

// A RoCEv2 GID is the IP address (roce.md section 1).
func putGID(p []byte, a netip.Addr) {
	gid := a.As16()
	copy(p, gid[:])
}

func getGID(p []byte) netip.Addr {
	gid := [16]byte(p)
	if gid == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(gid).Unmap()
}

// Append adds the datagram, Size bytes, to b. Fields wider than theirs on the
// wire are cut.
func (m *REQ) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeREQ)
	putModifier(b, m.ECE.Options)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	put24(p[5:], m.ECE.Vendor)
	binary.BigEndian.PutUint64(p[8:], m.ServiceID)
	binary.BigEndian.PutUint64(p[16:], m.GUID)
	binary.BigEndian.PutUint32(p[28:], m.QKey)
	put24(p[32:], m.QPN)
	p[35] = m.ResponderResources
	p[39] = m.InitiatorDepth
	p[43] = byte(m.RemoteResponseTimeout)<<3 | m.TransportType&3<<1 | bit(m.FlowControl, 0)
	put24(p[44:], m.StartingPSN)
	p[47] = byte(m.LocalResponseTimeout)<<3 | m.RetryCount&7
	binary.BigEndian.PutUint16(p[48:], m.PKey)
	p[50] = m.MTU<<4 | m.RNRRetryCount&7
	p[51] = m.MaxCMRetries<<4 | bit(m.SRQ, 3) | m.ExtendedTransport&7
	m.Primary.put(p[52:])
	m.Alternate.put(p[52+pathSize:])
	copy(p[140:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *REQ) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeREQ)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.ECE = ECE{Vendor: get24(p[5:]), Options: modifier(b)}
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.ServiceID = binary.BigEndian.Uint64(p[8:])
	m.GUID = binary.BigEndian.Uint64(p[16:])
	m.QKey = binary.BigEndian.Uint32(p[28:])
	m.QPN = get24(p[32:])
	m.ResponderResources = p[35]
	m.InitiatorDepth = p[39]
	m.RemoteResponseTimeout = Timeout(p[43] >> 3)
	m.TransportType = p[43] >> 1 & 3
	m.FlowControl = p[43]&1 != 0
	m.StartingPSN = get24(p[44:])
	m.LocalResponseTimeout = Timeout(p[47] >> 3)
	m.RetryCount = p[47] & 7
	m.PKey = binary.BigEndian.Uint16(p[48:])
	m.MTU = p[50] >> 4
	m.RNRRetryCount = p[50] & 7
	m.MaxCMRetries = p[51] >> 4
	m.SRQ = p[51]&8 != 0
	m.ExtendedTransport = p[51] & 7
	m.Primary.get(p[52:])
	m.Alternate.get(p[52+pathSize:])
	copy(m.PrivateData[:], p[140:])
	return nil
}

// FailoverUnsupported is a REP's answer to a REQ with an alternate path.
const FailoverUnsupported = 1

// A REP accepts a connection.
type REP struct {
	TransactionID      uint64
	LocalID, RemoteID  uint32
	QKey               uint32 // 0 for RC
	QPN                uint32 // 24 bits
	StartingPSN        uint32 // 24 bits
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     Timeout // how long the sender may take to acknowledge
	Failover           uint8   // 2 bits: 0 is accepted, or not asked for
	FlowControl        bool
	RNRRetryCount      uint8 // 3 bits, 7 is for ever; for the receiver's sends
	SRQ                bool
	GUID               uint64 // the sender's channel adapter
	ECE                ECE
	PrivateData        [REPPrivateData]byte
}

// Append adds the datagram, Size bytes, to b. Fields wider than theirs on the
// wire are cut.
func (m *REP) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeREP)
	putModifier(b, m.ECE.Options)
	p[15], p[19], p[23] = byte(m.ECE.Vendor>>16), byte(m.ECE.Vendor>>8), byte(m.ECE.Vendor)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteID)
	binary.BigEndian.PutUint32(p[8:], m.QKey)
	put24(p[12:], m.QPN)
	put24(p[20:], m.StartingPSN)
	p[24] = m.ResponderResources
	p[25] = m.InitiatorDepth
	p[26] = byte(m.TargetAckDelay)<<3 | m.Failover&3<<1 | bit(m.FlowControl, 0)
	p[27] = m.RNRRetryCount<<5 | bit(m.SRQ, 4)
	binary.BigEndian.PutUint64(p[28:], m.GUID)
	copy(p[36:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *REP) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeREP)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.RemoteID = binary.BigEndian.Uint32(p[4:])
	m.ECE = ECE{Vendor: uint32(p[15])<<16 | uint32(p[19])<<8 | uint32(p[23]), Options: modifier(b)}
	m.QKey = binary.BigEndian.Uint32(p[8:])
	m.QPN = get24(p[12:])
	m.StartingPSN = get24(p[20:])
	m.ResponderResources = p[24]
	m.InitiatorDepth = p[25]
	m.TargetAckDelay = Timeout(p[26] >> 3)
	m.Failover = p[26] >> 1 & 3
	m.FlowControl = p[26]&1 != 0
	m.RNRRetryCount = p[27] >> 5
	m.SRQ = p[27]&0x10 != 0
	m.GUID = binary.BigEndian.Uint64(p[28:])
	copy(m.PrivateData[:], p[36:])
	return nil
}

// An RTU tells the accepting side that the connection is in use.
type RTU struct {
	TransactionID     uint64
	LocalID, RemoteID uint32
	PrivateData       [RTUPrivateData]byte
}

// Append adds the datagram, Size bytes, to b.
func (m *RTU) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeRTU)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteID)
	copy(p[8:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *RTU) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeRTU)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.RemoteID = binary.BigEndian.Uint32(p[4:])
	copy(m.PrivateData[:], p[8:])
	return nil
}

// An MRA asks the sender of a REQ or REP for patience.
type MRA struct {
	TransactionID     uint64
	LocalID, RemoteID uint32
	Message           Message
	ServiceTimeout    Timeout // how long the answer may take
	PrivateData       [MRAPrivateData]byte
}

// Append adds the datagram, Size bytes, to b.
func (m *MRA) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeMRA)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteID)
	p[8] = byte(m.Message) << 6
	p[9] = byte(m.ServiceTimeout) << 3
	copy(p[10:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *MRA) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeMRA)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.RemoteID = binary.BigEndian.Uint32(p[4:])
	m.Message = Message(p[8] >> 6)
	m.ServiceTimeout = Timeout(p[9] >> 3)
	copy(m.PrivateData[:], p[10:])
	return nil
}
