package provider

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// paths has what is known of a device's addresses and of the paths from there. It is fixed when the device starts; the
// carrier knows what changes.
type paths struct {
	carrier   Carrier
	frameSize int  // bytes of payload, as configured; 0: as large as the interface allows
	loopback  bool // connections to addresses of the device's own are possible
}

// PathMTU returns the largest payload of a packet from a local address, in bytes; 0 if not
// even the smallest fits, or the interface is gone.
func (p *paths) PathMTU(local netip.Addr) int {
	mtu := roce.PathMTU(p.carrier.MTU(local))
	if p.frameSize != 0 {
		mtu = min(mtu, p.frameSize)
	}
	return mtu
}

// maxMTU is PathMTU as the connection manager has it: a code, 0 if none fits.
func (p *paths) maxMTU(local netip.Addr) uint8 { return roce.MTUCode(p.PathMTU(local)) }

// Reach is Carrier.Reach of the device: StatusSuccess unless there is no route. To the
// device's own addresses there is one only if it can loop connections back.
func (p *paths) Reach(local, remote netip.Addr) Status {
	if !p.loopback && slices.Contains(p.carrier.Addresses(), remote) {
		return StatusHostUnreachable
	}
	return p.carrier.Reach(local, remote)
}

// checkPath returns the path MTU from a local address, and whether a remote one can be
// reached. A failure counts as a failed attempt to connect.
func (m *Miniport) checkPath(local, remote netip.Addr) (mtu int, status Status) {
	mtu = m.PathMTU(local)
	status = m.Reach(local, remote)
	if mtu == 0 { // the interface is gone, or too narrow for any packet
		status = StatusNetworkUnreachable
	}
	if status != StatusSuccess {
		m.CountConnectFailure()
	}
	return mtu, status
}

// logFrameSizes tells of addresses whose path MTU is not the configured one
// (NDK-CFG-03).
func (p *paths) logFrameSizes(log func(string)) {
	if log == nil || p.frameSize == 0 {
		return
	}
	for _, address := range p.carrier.Addresses() {
		if mtu := p.PathMTU(address); mtu != p.frameSize {
			log(fmt.Sprintf("%v: the active RoCE MTU is %d bytes instead of the %d configured: the interface's MTU is %d",
				address, mtu, p.frameSize, p.carrier.MTU(address)))
		}
	}
}

// An ActiveAddress is an address of a device, with the MTUs that are in force
// there now, in bytes: of IP packets, and of payload in RoCE packets.
type ActiveAddress struct {
	Address   netip.Addr
	MTU       int
	FrameSize int // 0 if no RoCE packet fits
}

// ActiveAddresses lists the device's addresses.
func (p *paths) ActiveAddresses() []ActiveAddress {
	var active []ActiveAddress
	for _, a := range p.carrier.Addresses() {
		active = append(active, ActiveAddress{a, p.carrier.MTU(a), p.PathMTU(a)})
	}
	return active
}
