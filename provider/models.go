package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider/clock"
)

// This file gives object models beside NDKPI's access to a device (package verbs).

// Transport moves the packets of the device's queue pairs.
func (m *Miniport) Transport() *transport.Device { return m.transport }

// Manager makes and ends the device's connections.
func (m *Miniport) Manager() *gsi.Manager { return m.manager }

// Clock returns the device's clock.
func (m *Miniport) Clock() clock.Clock { return m.clock }

// EarlyMemory returns the memory in which queue pairs keep early packets.
func (m *Miniport) EarlyMemory() rc.EarlyMemory { return m.reorder }

// UsePort tells others what a port is used for that this process has claimed from Manager.
func (m *Miniport) UsePort(address netip.AddrPort, use sharing.PortUse) {
	m.ledger.UsePort(address, use)
}
