package sysclass

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func device() *Device {
	return &Device{
		Name:       "ndk0",
		Interfaces: []Interface{{"eth0", MAC{0x52, 0x54, 0, 0x77, 0xa6, 0xdf}}, {"eth1", MAC{2, 0, 0, 0, 0, 1}}},
		GIDs: []GID{
			{netip.MustParseAddr("10.77.0.11"), "eth0"},
			{netip.MustParseAddr("fd77::11"), "eth0"},
			{netip.MustParseAddr("10.78.0.11"), "eth1"},
		},
		Rate:     100e9,
		Counters: Counters{ReceivedOctets: 4000, SentOctets: 8007, ReceivedPackets: 3, SentPackets: 5, Own: map[string]uint64{"retransmitted": 7}},
	}
}

func contents(t *testing.T, files []File) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, f := range files {
		if _, twice := all[f.Path]; twice {
			t.Errorf("%s is there twice", f.Path)
		}
		if !f.Folder && !strings.HasSuffix(f.Content, "\n") {
			t.Errorf("%s: %q", f.Path, f.Content)
		}
		all[f.Path] = strings.TrimSuffix(f.Content, "\n")
	}
	return all
}

// The names and values that a kernel shows of soft-RoCE on an interface of the same
// address, recorded of Linux 6.1. A few values are the device's own.
const recorded = `
infiniband/rxe0/fw_ver
infiniband/rxe0/node_desc rxe
infiniband/rxe0/node_guid 5054:00ff:fe77:a6df
infiniband/rxe0/node_type 1: CA
infiniband/rxe0/parent eth0
infiniband/rxe0/sys_image_guid 5054:00ff:fe77:a6df
infiniband/rxe0/uevent NAME=rxe0
infiniband/rxe0/ports/1/cap_mask 0x00010000
infiniband/rxe0/ports/1/gid_attrs/ndevs/0 eth0
infiniband/rxe0/ports/1/gid_attrs/types/0 RoCE v2
infiniband/rxe0/ports/1/gids/0 0000:0000:0000:0000:0000:ffff:0a4d:000b
infiniband/rxe0/ports/1/gids/3 0000:0000:0000:0000:0000:0000:0000:0000
infiniband/rxe0/ports/1/lid 0x0
infiniband/rxe0/ports/1/lid_mask_count 0
infiniband/rxe0/ports/1/link_layer Ethernet
infiniband/rxe0/ports/1/phys_state 5: LinkUp
infiniband/rxe0/ports/1/pkeys/0 0xffff
infiniband/rxe0/ports/1/rate 2.5 Gb/sec (1X SDR)
infiniband/rxe0/ports/1/sm_lid 0x0
infiniband/rxe0/ports/1/sm_sl 0
infiniband/rxe0/ports/1/state 4: ACTIVE
infiniband_mad/abi_version 5
infiniband_verbs/abi_version 6
infiniband_verbs/uverbs0/abi_version 2
infiniband_verbs/uverbs0/dev 231:192
infiniband_verbs/uverbs0/ibdev rxe0
infiniband_verbs/uverbs0/uevent
misc/rdma_cm/abi_version 4
misc/rdma_cm/dev 10:124
misc/rdma_cm/uevent
`

func TestTreeIsTheKernels(t *testing.T) {
	d := device()
	d.Name = "rxe0"
	files := contents(t, Tree(d))
	own := []string{"node_desc", "rate", "dev", "uevent", "uverbs0/abi_version"}
	for line := range strings.Lines(strings.TrimSpace(recorded)) {
		path, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		got, ok := files[path]
		if !ok {
			t.Errorf("%s is missing", path)
		}
		if got != want && !slices.ContainsFunc(own, func(name string) bool { return strings.HasSuffix(path, "/"+name) }) {
			t.Errorf("%s is %q, the kernel's %q", path, got, want)
		}
	}
}

func TestTree(t *testing.T) {
	files := contents(t, Tree(device()))
	for path, want := range map[string]string{
		"infiniband_cm":                                     "",
		"infiniband_verbs/uverbs0/ibdev":                    "ndk0",
		"infiniband_verbs/uverbs0/dev":                      "1:3",
		"infiniband/ndk0/node_guid":                         "5054:00ff:fe77:a6df",
		"infiniband/ndk0/device/numa_node":                  "-1",
		"infiniband/ndk0/device/net/eth0/address":           "52:54:00:77:a6:df",
		"infiniband/ndk0/device/net/eth1/address":           "02:00:00:00:00:01",
		"infiniband/ndk0/ports/1/gids/1":                    "fd77:0000:0000:0000:0000:0000:0000:0011",
		"infiniband/ndk0/ports/1/gids/2":                    "0000:0000:0000:0000:0000:ffff:0a4e:000b",
		"infiniband/ndk0/ports/1/gid_attrs/ndevs/2":         "eth1",
		"infiniband/ndk0/ports/1/rate":                      "100 Gb/sec (4X EDR)",
		"infiniband/ndk0/ports/1/counters/port_rcv_data":    "1000",
		"infiniband/ndk0/ports/1/counters/port_xmit_data":   "2001",
		"infiniband/ndk0/ports/1/counters/port_rcv_packets": "3",
		"infiniband/ndk0/ports/1/hw_counters/retransmitted": "7",
	} {
		if got, ok := files[path]; !ok || got != want {
			t.Errorf("%s is %q (%v), want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{"infiniband/ndk0/ports/1/gid_attrs/types/3", "infiniband/ndk0/ports/1/gids/8"} {
		if _, ok := files[path]; ok {
			t.Errorf("%s is there", path)
		}
	}
}

func TestPortDown(t *testing.T) {
	d := device()
	d.Down = true
	files := contents(t, Changing(d))
	for path, want := range map[string]string{"state": "1: DOWN", "phys_state": "3: Disabled", "counters/port_rcv_packets": "3"} {
		if got := files["infiniband/ndk0/ports/1/"+path]; got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

// A node without an interface or address has a device all the same.
func TestTreeOfNothing(t *testing.T) {
	files := contents(t, Tree(&Device{Name: "ndk0"}))
	if got := files["infiniband/ndk0/node_guid"]; got != "0200:00ff:fe00:0000" {
		t.Errorf("GUID %s", got)
	}
}

func TestRate(t *testing.T) {
	for speed, want := range map[uint64]string{
		0: "2.5 Gb/sec (1X SDR)", 1e9: "2.5 Gb/sec (1X SDR)", 10e9: "10 Gb/sec (1X FDR10)", 10e9 + 1: "20 Gb/sec (4X DDR)",
		25e9: "25 Gb/sec (1X EDR)", 200e9: "200 Gb/sec (4X HDR)", 800e9: "400 Gb/sec (4X NDR)",
	} {
		if got := rate(speed); got != want {
			t.Errorf("%d bit/s: %s, want %s", speed, got, want)
		}
	}
}
