package mad

import (
	"encoding/binary"
	"fmt"
)

// REJPrivateData is the size of a REJ's private data, in bytes.
const REJPrivateData = 148

// A Message names the message that a REJ or MRA answers.
type Message uint8

// The messages that can be answered. MessageOther is in a REJ "none of these",
// in an MRA a LAP.
const (
	MessageREQ   Message = 0
	MessageREP   Message = 1
	MessageOther Message = 2
)

// A Reason says why a REJ was sent.
type Reason uint16

// The reasons (roce.md 10.5).
const (
	ReasonNoQP                       Reason = 1
	ReasonNoEEC                      Reason = 2
	ReasonNoResources                Reason = 3
	ReasonTimeout                    Reason = 4
	ReasonUnsupported                Reason = 5
	ReasonInvalidCommID              Reason = 6
	ReasonInvalidCommInstance        Reason = 7
	ReasonInvalidServiceID           Reason = 8
	ReasonInvalidTransport           Reason = 9
	ReasonStaleConnection            Reason = 10
	ReasonNoRDC                      Reason = 11
	ReasonInvalidGID                 Reason = 12
	ReasonInvalidLID                 Reason = 13
	ReasonInvalidSL                  Reason = 14
	ReasonInvalidTrafficClass        Reason = 15
	ReasonInvalidHopLimit            Reason = 16
	ReasonInvalidPacketRate          Reason = 17
	ReasonInvalidAlternateGID        Reason = 18
	ReasonInvalidAlternateLID        Reason = 19
	ReasonInvalidAlternateSL         Reason = 20
	ReasonInvalidAlternateClass      Reason = 21
	ReasonInvalidAlternateHopLimit   Reason = 22
	ReasonInvalidAlternatePacketRate Reason = 23
	ReasonPortAndCMRedirect          Reason = 24
	ReasonPortRedirect               Reason = 25
	ReasonInvalidMTU                 Reason = 26
	ReasonResponderResources         Reason = 27
	ReasonConsumer                   Reason = 28
	ReasonInvalidRNRRetry            Reason = 29
	ReasonDuplicateCommID            Reason = 30
	ReasonInvalidClassVersion        Reason = 31
	ReasonInvalidFlowLabel           Reason = 32
	ReasonInvalidAlternateFlowLabel  Reason = 33
	ReasonVendorOption               Reason = 35
)

var reasonNames = [...]string{
	ReasonNoQP:                       "no queue pair",
	ReasonNoEEC:                      "no end-to-end context",
	ReasonNoResources:                "no resources",
	ReasonTimeout:                    "timeout",
	ReasonUnsupported:                "unsupported request",
	ReasonInvalidCommID:              "invalid communication ID",
	ReasonInvalidCommInstance:        "invalid communication instance",
	ReasonInvalidServiceID:           "invalid service ID",
	ReasonInvalidTransport:           "invalid transport type",
	ReasonStaleConnection:            "stale connection",
	ReasonNoRDC:                      "no reliable datagram channel",
	ReasonInvalidGID:                 "invalid GID",
	ReasonInvalidLID:                 "invalid LID",
	ReasonInvalidSL:                  "invalid service level",
	ReasonInvalidTrafficClass:        "invalid traffic class",
	ReasonInvalidHopLimit:            "invalid hop limit",
	ReasonInvalidPacketRate:          "invalid packet rate",
	ReasonInvalidAlternateGID:        "invalid alternate GID",
	ReasonInvalidAlternateLID:        "invalid alternate LID",
	ReasonInvalidAlternateSL:         "invalid alternate service level",
	ReasonInvalidAlternateClass:      "invalid alternate traffic class",
	ReasonInvalidAlternateHopLimit:   "invalid alternate hop limit",
	ReasonInvalidAlternatePacketRate: "invalid alternate packet rate",
	ReasonPortAndCMRedirect:          "port and connection manager redirected",
	ReasonPortRedirect:               "port redirected",
	ReasonInvalidMTU:                 "invalid path MTU",
	ReasonResponderResources:         "insufficient responder resources",
	ReasonConsumer:                   "rejected by the consumer",
	ReasonInvalidRNRRetry:            "invalid RNR retry count",
	ReasonDuplicateCommID:            "duplicate communication ID",
	ReasonInvalidClassVersion:        "invalid class version",
	ReasonInvalidFlowLabel:           "invalid flow label",
	ReasonInvalidAlternateFlowLabel:  "invalid alternate flow label",
	ReasonVendorOption:               "vendor option not supported",
}

// String returns the reason in words.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint16(r))
}

// A REJ refuses a connection or gives one up.
type REJ struct {
	TransactionID uint64
	LocalID       uint32 // 0 when a REQ is refused before it was given an ID
	RemoteID      uint32 // 0 when the sender never learned it
	Message       Message
	Reason        Reason
	// ARI is additional information, of which ARILength bytes count: with
	// ReasonTimeout the sender's CA GUID, with ReasonInvalidGID an acceptable
	// GID, with ReasonInvalidMTU an acceptable MTU code.
	ARILength   uint8 // 0 to 127 on the wire, but never more than 72 is held
	ARI         [72]byte
	PrivateData [REJPrivateData]byte
}

// SetGUID puts the sender's CA GUID into the ARI, as ReasonTimeout requires: the
// receiver may know nothing else to find the connection by.
func (m *REJ) SetGUID(guid uint64) {
	m.ARILength = 8
	binary.BigEndian.PutUint64(m.ARI[:], guid)
}

// GUID returns the CA GUID in the ARI; false if the ARI holds none.
func (m *REJ) GUID() (uint64, bool) {
	return binary.BigEndian.Uint64(m.ARI[:]), m.ARILength >= 8
}

// Append adds the datagram, Size bytes, to b.
func (m *REJ) Append(b []byte) []byte {
	b, p := appendDatagram(b, m.TransactionID, AttributeREJ)
	binary.BigEndian.PutUint32(p[0:], m.LocalID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteID)
	p[8] = byte(m.Message) << 6
	p[9] = m.ARILength << 1
	binary.BigEndian.PutUint16(p[10:], uint16(m.Reason))
	copy(p[12:84], m.ARI[:])
	copy(p[84:], m.PrivateData[:])
	return b
}

// Decode reads a datagram of Size bytes; m shares no memory with b.
func (m *REJ) Decode(b []byte) error {
	tid, p, err := openDatagram(b, AttributeREJ)
	if err != nil {
		return err
	}
	m.TransactionID = tid
	m.LocalID = binary.BigEndian.Uint32(p[0:])
	m.RemoteID = binary.BigEndian.Uint32(p[4:])
	m.Message = Message(p[8] >> 6)
	m.ARILength = p[9] >> 1
	m.Reason = Reason(binary.BigEndian.Uint16(p[10:]))
	copy(m.ARI[:], p[12:84])
	copy(m.PrivateData[:], p[84:])
	return nil
}
