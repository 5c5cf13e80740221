package ucm

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// pkey is the default partition's, in network order.
var pkey = [2]byte{0xFF, 0xFF}

// Selectors of a path record (IBTA Vol. 1, 15.2.5.16).
const selectExactly = 2

// rate100 is 100 Gb/s as a static rate (enum ibv_rate). A link of the lab has no speed that a path could tell.
const rate100 = 16

func (r request) queryRoute() error {
	cmd, err := decoded[query](r.body)
	if err != nil {
		return err
	}
	if r.out < routeResponseLeast {
		return syscall.ENOSPC
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	response := routeResponse{DeviceIndex: noDeviceIndex}
	putAddress(response.Source[:], i.local)
	putAddress(response.Destination[:], i.destination())
	if i.hasDevice() {
		response.NodeGUID, response.Port = r.channel.service.config.NodeGUID, port
		route := &response.Routes[0]
		route.DGID, route.SGID, route.PKey = gidOf(i.remote.Addr()), gidOf(i.local.Addr()), pkey
		if i.hasRoute() {
			response.Paths = 1
			i.fillPath(route)
		}
	}
	return r.respond(cmd.Response, routeResponseLeast, &response)
}

// destination returns the remote address, or the wildcard of its family while an id is only bound.
func (i *id) destination() netip.AddrPort {
	if i.remote.IsValid() || !i.local.IsValid() {
		return i.remote
	}
	return netip.AddrPortFrom(anyAddress(i.local.Addr()), 0)
}

// hasRoute reports whether the path to the peer is known.
func (i *id) hasRoute() bool {
	return i.remote.IsValid() && i.state >= routeResolved && i.state != listening
}

// fillPath fills in the properties of packets to the peer.
func (i *id) fillPath(p *pathRecord) {
	binary.BigEndian.PutUint32(p.FlowLabel[:], mad.FlowLabel(i.local.Port(), i.remote.Port()))
	p.DLID, p.SLID = [2]byte{0xFF, 0xFF}, [2]byte{0xFF, 0xFF} // there are none (roce.md 12.3)
	p.Reversible, p.Paths = 1, 1
	p.MTUSelector, p.MTU = selectExactly, uint32(i.mtu())
	if i.agreed.mtu != 0 {
		p.MTU = uint32(i.agreed.mtu)
	}
	p.RateSelector, p.Rate = selectExactly, rate100
	p.LifeTimeSelector, p.LifeTime = selectExactly, uint8(i.lifeTime())
	p.HopLimit, p.TrafficClass = hopLimit, i.options.service
}

func (r request) query() error {
	cmd, err := decoded[query](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	switch cmd.Option {
	case queryAddr:
		response := i.newAddrResponse()
		response.SourceSize = uint16(putAddress(response.Source[:], i.local))
		response.DestinationSize = uint16(putAddress(response.Destination[:], i.destination()))
		return r.respond(cmd.Response, addrResponseLeast, &response)
	case queryGID:
		response := i.newAddrResponse()
		response.SourceSize = putGID(response.Source[:], i, i.local)
		response.DestinationSize = putGID(response.Destination[:], i, i.destination())
		return r.respond(cmd.Response, addrResponseLeast, &response)
	case queryPath:
		return r.queryPath(i, cmd.Response)
	}
	return syscall.ENOSYS
}

// newAddrResponse returns the answer to a query, without the addresses.
func (i *id) newAddrResponse() addrResponse {
	response := addrResponse{DeviceIndex: noDeviceIndex}
	if i.hasDevice() {
		response.NodeGUID, response.Port, response.PKey = i.service.config.NodeGUID, port, pkey
	}
	return response
}

// putGID writes an address as struct sockaddr_ib, and returns its size.
func putGID(b []byte, i *id, a netip.AddrPort) uint16 {
	const size = 48
	binary.NativeEndian.PutUint16(b, familyIB)
	copy(b[2:], pkey[:])
	gid := gidOf(a.Addr())
	copy(b[8:], gid[:])
	binary.BigEndian.PutUint64(b[24:], uint64(i.space)<<16|uint64(a.Port()))
	return size
}

// queryPath answers with the path to the peer, as far as it is known and there is room.
func (r request) queryPath(i *id, address uint64) error {
	const least, whole = 8, 8 + 72
	response := pathResponse{}
	if i.hasRoute() {
		response.Paths = 1
	}
	b := encoded(response)
	if i.hasRoute() && r.out >= whole {
		data := pathData{Flags: pathGMP | pathPrimary | pathBidirectional}
		var record pathRecord
		record.DGID, record.SGID = gidOf(i.remote.Addr()), gidOf(i.local.Addr())
		i.fillPath(&record)
		packPath(data.Record[:], &record)
		b = append(b, encoded(&data)...)
	}
	return r.respond(address, least, b)
}

// packPath writes a path record as the subnet administrator has it (IBTA Vol. 1, 15.2.5.16).
func packPath(b []byte, p *pathRecord) {
	copy(b[8:], p.DGID[:])
	copy(b[24:], p.SGID[:])
	copy(b[40:], p.DLID[:])
	copy(b[42:], p.SLID[:])
	label := binary.BigEndian.Uint32(p.FlowLabel[:])
	binary.BigEndian.PutUint32(b[44:], label<<8|uint32(p.HopLimit))
	b[48] = p.TrafficClass
	b[49] = uint8(p.Reversible)<<7 | p.Paths
	copy(b[50:], pkey[:])
	b[53] = p.SL
	b[54] = p.MTUSelector<<6 | uint8(p.MTU)
	b[55] = p.RateSelector<<6 | p.Rate
	b[56] = p.LifeTimeSelector<<6 | p.LifeTime
	b[57] = p.Preference
}
