package provider

// An NDISHeader begins every structure of NDIS (NDIS_OBJECT_HEADER).
type NDISHeader struct {
	Type, Revision uint8
	Size           uint16 // bytes
}

// The types of NDIS structures (ndkpi.md 2.10). All are of revision 1.
const (
	ndisDefault    = 0x80
	ndisAttributes = 0xB3
	ndisRevision   = 1
)

// Attributes are a device's report on NDK, which it makes also while NDK is
// disabled (NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES).
type Attributes struct {
	Header       NDISHeader
	Enabled      bool
	Capabilities *NDISCapabilities
}

// NDISCapabilities are the limits of a device (NDIS_NDK_CAPABILITIES).
type NDISCapabilities struct {
	Header NDISHeader
	Flags  uint32 // 0
	Capabilities
	MissingCounterMask uint64       // 0: every counter is implemented (NDK-CNT-12)
	NdkInfo            *AdapterInfo // the limits of each consumer
}

// Attributes reports whether NDK is enabled, and the device's limits. The caller
// may keep and change what it gets.
func (m *Miniport) Attributes() Attributes {
	info := m.info
	return Attributes{
		Header:  NDISHeader{ndisAttributes, ndisRevision, 16},
		Enabled: m.isEnabled(),
		Capabilities: &NDISCapabilities{
			Header: NDISHeader{ndisDefault, ndisRevision, 56}, Capabilities: m.capabilities, NdkInfo: &info,
		},
	}
}
