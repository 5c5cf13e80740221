// Package sysclass makes the tree in /sys/class by which programs find RDMA devices, as
// names and contents of files. UCX, perftest, ibstat, hwloc and monitors read it; ndklab's
// libibverbs has no need of it.
//
// It has the files that the kernel shows for soft-RoCE (Documentation/ABI/stable/
// sysfs-class-infiniband), and device/, which drivers of hardware have and which leads to
// the network interfaces. Changing returns the files whose contents change.
//
// It does no I/O. Start reading at Tree.
package sysclass

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
)

// A Device is an adapter with one port.
type Device struct {
	Name       string      // as ibv_devices lists it
	Interfaces []Interface // the network interfaces that it is on; the GUIDs come of the first
	GIDs       []GID       // in the order of their indices
	Rate       uint64      // of the link, bits per second
	Down       bool        // no interface has a carrier
	Counters   Counters
}

// An Interface is a network interface.
type Interface struct {
	Name string
	MAC  MAC
}

// A MAC is the address of a network interface.
type MAC [6]byte

// String returns the address as sysfs shows it.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// A GID is an address of the device, and the name of the interface that has it.
type GID struct {
	Address   netip.Addr
	Interface string
}

// Counters are a port's.
type Counters struct {
	ReceivedOctets, SentOctets   uint64
	ReceivedPackets, SentPackets uint64
	Own                          map[string]uint64 // under names of the adapter's own
}

// The folders of /sys/class that Tree fills.
const (
	Devices = "infiniband"
	Verbs   = "infiniband_verbs"
	CM      = "infiniband_cm"
	MAD     = "infiniband_mad"
	Misc    = "misc" // which has others' devices, too
)

// Own are those of the folders that have RDMA devices alone.
var Own = []string{Devices, Verbs, CM, MAD}

// A File is a file, or a folder, below /sys/class.
type File struct {
	Path    string
	Content string
	Folder  bool // it is a folder without files
}

// Version numbers of the kernel's interfaces to programs (rdma/ib_user_verbs.h,
// ib_user_mad.h, rdma_user_cm.h), and the driver's own.
const (
	verbsABI  = 6
	driverABI = 1
	madABI    = 5
	cmABI     = 4
)

// The device numbers of /dev/infiniband/uverbs0 and rdma_cm are those of /dev/null, which
// stands for both (mem(4)).
const nullDevice = "1:3"

// gids is the least number of entries that the table of GIDs shows. Programs read on until there
// is none, so that few are soon read.
const gids = 8

// Tree lists the files that /sys/class has because of a device. Of most folders it names the files only.
func Tree(d *Device) []File {
	var t tree
	t.put(Verbs+"/abi_version", verbsABI)
	uverbs := Verbs + "/uverbs0/"
	t.put(uverbs+"ibdev", d.Name)
	t.put(uverbs+"dev", nullDevice)
	t.put(uverbs+"abi_version", driverABI)
	t.put(uverbs+"uevent", "MAJOR=1\nMINOR=3\nDEVNAME=infiniband/uverbs0\nDEVMODE=0666")
	t.put(MAD+"/abi_version", madABI)
	t.files = append(t.files, File{Path: CM, Folder: true})
	t.put(Misc+"/rdma_cm/abi_version", cmABI)
	t.put(Misc+"/rdma_cm/dev", nullDevice)
	t.put(Misc+"/rdma_cm/uevent", "MAJOR=1\nMINOR=3\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666")

	device, guid := Devices+"/"+d.Name+"/", words(d.guid())
	t.put(device+"node_type", "1: CA")
	t.put(device+"node_desc", "ndklab")
	t.put(device+"node_guid", guid)
	t.put(device+"sys_image_guid", guid)
	t.put(device+"fw_ver", "")
	t.put(device+"uevent", "NAME="+d.Name)
	if len(d.Interfaces) > 0 {
		t.put(device+"parent", d.Interfaces[0].Name)
	}
	// rdma-core's tests of rdma_cm find the interface by this, and UCX the memory that is
	// near: no node's (-1).
	t.put(device+"device/numa_node", -1)
	for _, i := range d.Interfaces {
		t.put(device+"device/net/"+i.Name+"/address", i.MAC)
		t.put(device+"device/net/"+i.Name+"/dev_port", 0)
	}
	t.describePort(d)
	t.files = append(t.files, Changing(d)...)
	return t.files
}

type tree struct{ files []File }

// put adds a file of one value, which a newline ends as in sysfs.
func (t *tree) put(path string, value any) {
	t.files = append(t.files, File{Path: path, Content: fmt.Sprintln(value)})
}

// port returns the folder of a device's only port.
func (d *Device) port() string { return Devices + "/" + d.Name + "/ports/1/" }

func (t *tree) describePort(d *Device) {
	port := d.port()
	t.put(port+"link_layer", "Ethernet")
	t.put(port+"rate", rate(d.Rate))
	t.put(port+"lid", "0x0")
	t.put(port+"lid_mask_count", 0)
	t.put(port+"sm_lid", "0x0")
	t.put(port+"sm_sl", 0)
	t.put(port+"cap_mask", "0x00010000") // IB_PORT_CM_SUP
	t.put(port+"pkeys/0", "0xffff")
	for i, gid := range d.GIDs {
		index := strconv.Itoa(i)
		t.put(port+"gids/"+index, words(gid.Address.As16()))
		t.put(port+"gid_attrs/types/"+index, "RoCE v2")
		t.put(port+"gid_attrs/ndevs/"+index, gid.Interface)
	}
	for i := len(d.GIDs); i < gids; i++ {
		t.put(port+"gids/"+strconv.Itoa(i), words([16]byte{}))
	}
}

// Changing returns the files of Tree whose contents change: the port's state and counters.
func Changing(d *Device) []File {
	var t tree
	state, physical := "4: ACTIVE", "5: LinkUp"
	if d.Down {
		state, physical = "1: DOWN", "3: Disabled"
	}
	t.put(d.port()+"state", state)
	t.put(d.port()+"phys_state", physical)
	folder := d.port() + "counters/"
	// In words of four octets (IBTA Vol. 1, 16.1.3.5).
	t.put(folder+"port_rcv_data", d.Counters.ReceivedOctets/4)
	t.put(folder+"port_xmit_data", d.Counters.SentOctets/4)
	for _, name := range []string{"port_rcv_packets", "unicast_rcv_packets"} {
		t.put(folder+name, d.Counters.ReceivedPackets)
	}
	for _, name := range []string{"port_xmit_packets", "unicast_xmit_packets"} {
		t.put(folder+name, d.Counters.SentPackets)
	}
	for _, name := range faults {
		t.put(folder+name, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Counters.Own)) {
		t.put(d.port()+"hw_counters/"+name, d.Counters.Own[name])
	}
	return t.files
}

// faults are the counters of a port that have nothing to count here.
var faults = []string{
	"VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
	"local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets",
	"port_rcv_constraint_errors", "port_rcv_errors", "port_rcv_remote_physical_errors",
	"port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_discards",
	"port_xmit_wait", "symbol_error",
}

// guid returns the EUI-64 of the first interface (RFC 4291, Appendix A).
func (d *Device) guid() [8]byte {
	var m MAC
	if len(d.Interfaces) > 0 {
		m = d.Interfaces[0].MAC
	}
	return [8]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

// words is a GUID or GID as sysfs shows it, in groups of 16 bits.
func words[T [8]byte | [16]byte](id T) string {
	var text []byte
	for i := 0; i < len(id); i += 2 {
		if i > 0 {
			text = append(text, ':')
		}
		text = fmt.Appendf(text, "%04x", binary.BigEndian.Uint16([]byte{id[i], id[i+1]}))
	}
	return string(text)
}

// rates are the links that Linux takes a network interface's speed for
// (ib_get_width_and_speed in drivers/infiniband/core/verbs.c).
var rates = []struct {
	most uint64 // bits per second
	name string
}{
	{1e9, "2.5 Gb/sec (1X SDR)"},
	{10e9, "10 Gb/sec (1X FDR10)"},
	{20e9, "20 Gb/sec (4X DDR)"},
	{25e9, "25 Gb/sec (1X EDR)"},
	{40e9, "40 Gb/sec (4X FDR10)"},
	{50e9, "50 Gb/sec (1X HDR)"},
	{100e9, "100 Gb/sec (4X EDR)"},
	{200e9, "200 Gb/sec (4X HDR)"},
}

// rate returns the state of a port's link in words.
func rate(bitsPerSecond uint64) string {
	for _, r := range rates {
		if bitsPerSecond <= r.most {
			return r.name
		}
	}
	return "400 Gb/sec (4X NDR)"
}
