package main

/*
#include "engine.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
)

// process is this process's part of the node's adapter. Contexts share it.
var process struct {
	mu      sync.Mutex // guards what follows
	device  *provider.Miniport
	report  func()             // reports the device's counters, once
	indexes map[netip.Addr]int // of interfaces
	guid    uint64
}

// openTime bounds how long the node's agent may take to share its adapter.
const openTime = 10 * time.Second

// engineStart opens the node's adapter for the process. It returns ENODEV if there is none and ENOSPC if too many share
// it, with the reason in message, which has room for size bytes.
//
//export engineStart
func engineStart(version C.uint32_t, message *C.char, size C.uint64_t) C.int {
	err := fmt.Errorf("libndklab-rnic.so is of version %d, libibverbs.so.1 of version %d: they are of different releases of ndklab", C.ENGINE_VERSION, version)
	if version == C.ENGINE_VERSION {
		err = openProcess()
	}
	if err == nil {
		return 0
	}
	if size > 0 {
		to := unsafe.Slice((*byte)(unsafe.Pointer(message)), int(size))
		to[copy(to[:len(to)-1], err.Error())] = 0
	}
	if errors.Is(err, syscall.ENOSPC) {
		return C.int(syscall.ENOSPC)
	}
	return C.int(syscall.ENODEV)
}

func openProcess() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.device != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	device, report, err := lease.OpenTelling(ctx)
	if err != nil {
		return err
	}
	if err := findInterfaces(device); err != nil {
		device.Close()
		return err
	}
	process.device, process.report = device, sync.OnceFunc(report)
	return nil
}

// engineEnded reports the process's counters when it ends: nobody closes its device. It returns
// when that is done, whoever does it.
//
//export engineEnded
func engineEnded() {
	if !process.mu.TryLock() { // its holder may not be running any more
		return
	}
	report := process.report
	process.mu.Unlock()
	if report != nil {
		report()
	}
}

// findInterfaces finds the interfaces that have the device's addresses.
func findInterfaces(device *provider.Miniport) error {
	process.indexes = map[netip.Addr]int{}
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				process.indexes[prefix.Addr().Unmap()] = i.Index
			}
		}
	}
	on := map[int]bool{}
	for i, own := range device.ActiveAddresses() {
		index := process.indexes[own.Address]
		on[index] = true
		if first, err := net.InterfaceByIndex(index); i == 0 && err == nil {
			process.guid = guidOf(first.HardwareAddr)
		}
	}
	return startPort(on)
}

// guidOf returns the EUI-64 of a MAC address, as Linux makes a RoCE device's GUID of it.
func guidOf(mac net.HardwareAddr) uint64 {
	if len(mac) != 6 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte{mac[0] ^ 2, mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]})
}

// errno returns the errno of an error, as the functions of the table do.
func errno(err error) C.int {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return C.int(e)
	}
	return C.int(syscall.EIO)
}

// An opened is a context of the library's.
type opened struct {
	*verbs.Context
	events   *outbox
	stopPort func() // ends those of the port
}

var contexts handles[opened]

//export engineOpen
func engineOpen(fd C.int, out *C.uint64_t) C.int {
	o := &opened{events: outboxOf(int(fd))}
	c, err := verbs.Open(process.device, verbs.DefaultLimits(), o.event)
	if err != nil {
		return errno(err)
	}
	if client != 0 {
		c.Use(&space)
	}
	o.Context, o.stopPort = c, followPort(o)
	*out = C.uint64_t(contexts.add(o))
	return 0
}

// event reports an asynchronous event to the library, and to the connection manager.
func (o *opened) event(e verbs.Event) {
	reportToManager(e)
	var cookie uint64
	switch {
	case e.CQ != nil:
		cookie = cookieOf(e.CQ)
		if name, ok := names.Load(e.CQ); ok {
			cookie = name.(uint64)
		}
	case e.QP != nil:
		cookie = e.QP.Cookie().(uint64)
	case e.SRQ != nil:
		cookie = cookieOf(e.SRQ)
	}
	port := uint32(0)
	if e.Type == verbs.EventPortActive || e.Type == verbs.EventPortError || e.Type == verbs.EventGIDChange {
		port = 1
	}
	var b [16]byte
	binary.NativeEndian.PutUint32(b[:], uint32(e.Type))
	binary.NativeEndian.PutUint32(b[4:], port)
	binary.NativeEndian.PutUint64(b[8:], cookie)
	o.events.put(event{cookie, b[:]})
}

// cookies are the library's, by the object; names are those of asynchronous events about CQs, where they are others.
var cookies, names sync.Map

func cookieOf(object any) uint64 {
	cookie, _ := cookies.Load(object)
	n, _ := cookie.(uint64)
	return n
}

//export engineClose
func engineClose(context C.uint64_t) C.int {
	return errno(contexts.remove(uint64(context), func(o *opened) error {
		o.stopPort()
		err := o.Close()
		if err == nil { // the library closes the socket
			o.events.remove(func(event) bool { return true })
		}
		return err
	}))
}

//export engineNodeGUID
func engineNodeGUID() C.uint64_t {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], process.guid)
	return C.uint64_t(binary.NativeEndian.Uint64(b[:]))
}

//export engineClock
func engineClock() C.uint64_t { return C.uint64_t(process.device.Clock().Now()) }

//export engineQueryGIDs
func engineQueryGIDs(context C.uint64_t, out *C.struct_engine_gid, most C.int) C.int {
	o := contexts.get(uint64(context))
	if o == nil {
		return -C.int(syscall.EINVAL)
	}
	gids := o.GIDs()
	to := unsafe.Slice(out, int(most))
	for i, gid := range gids {
		if i < len(to) {
			to[i] = C.struct_engine_gid{
				gid: *(*[16]C.uint8_t)(unsafe.Pointer(new(gid.Address.As16()))), ifindex: C.uint32_t(process.indexes[gid.Address]), mtu: C.uint32_t(gid.MTU),
			}
		}
	}
	return C.int(len(gids))
}

//export engineQueryDevice
func engineQueryDevice(context C.uint64_t, out *C.struct_ibv_device_attr_ex) C.int {
	o := contexts.get(uint64(context))
	if o == nil {
		return C.int(syscall.EINVAL)
	}
	*out = C.struct_ibv_device_attr_ex{}
	a, l := &out.orig_attr, verbs.DefaultLimits()
	for i, letter := range "ndklab" {
		a.fw_ver[i] = C.char(letter)
	}
	a.node_guid, a.sys_image_guid = C.__be64(engineNodeGUID()), C.__be64(engineNodeGUID())
	a.max_mr_size, a.page_size_cap, a.vendor_id = 1<<64-1, 0xFFFFF000, 0xFFFFFF
	a.max_qp, a.max_qp_wr = C.int(l.QPs), C.int(l.WorkRequests)
	a.device_cap_flags = C.IBV_DEVICE_CURR_QP_STATE_MOD | C.IBV_DEVICE_PORT_ACTIVE_EVENT | C.IBV_DEVICE_SYS_IMAGE_GUID |
		C.IBV_DEVICE_RC_RNR_NAK_GEN | C.IBV_DEVICE_SRQ_RESIZE | C.IBV_DEVICE_MEM_WINDOW | C.IBV_DEVICE_MEM_WINDOW_TYPE_2B |
		C.IBV_DEVICE_MEM_MGT_EXTENSIONS
	a.max_sge, a.max_sge_rd = C.int(l.SGEs), C.int(l.SGEs)
	a.max_cq, a.max_cqe = C.int(l.CQs), C.int(l.CQEs)
	a.max_mr, a.max_mw, a.max_pd = C.int(l.MRs), C.int(l.MWs), C.int(l.PDs)
	a.max_qp_rd_atom, a.max_qp_init_rd_atom, a.max_res_rd_atom = C.int(l.Reads), C.int(l.Reads), C.int(l.QPs*l.Reads)
	a.atomic_cap = C.IBV_ATOMIC_HCA
	a.max_mcast_grp, a.max_mcast_qp_attach, a.max_total_mcast_qp_attach = 8192, 56, 8192*56
	a.max_ah, a.max_srq, a.max_srq_wr, a.max_srq_sge = C.int(l.AHs), C.int(l.SRQs), C.int(l.WorkRequests), C.int(l.SGEs)
	a.max_pkeys, a.local_ca_ack_delay, a.phys_port_cnt = 1, 15, 1
	out.phys_port_cnt_ex = 1
	out.device_cap_flags_ex = C.uint64_t(a.device_cap_flags) | deviceAtomicWrite
	setPageable(&out.odp_caps)
	out.completion_timestamp_mask, out.hca_core_clock = 1<<64-1, ticksPerMillisecond
	return 0
}

// ticksPerMillisecond is the frequency of the device's clock, kHz: its unit is the nanosecond.
const ticksPerMillisecond = 1e6

// deviceAtomicWrite is IB_UVERBS_DEVICE_ATOMIC_WRITE of the kernel's headers.
const deviceAtomicWrite = 1 << 40

// setPageable says that every operation of queue pairs can use memory on demand: no memory is pinned.
func setPageable(caps *C.struct_ibv_odp_caps) {
	const messages = C.IBV_ODP_SUPPORT_SEND | C.IBV_ODP_SUPPORT_RECV | C.IBV_ODP_SUPPORT_SRQ_RECV
	caps.general_caps = C.IBV_ODP_SUPPORT
	if client == 0 { // other processes' address spaces cannot be reserved here (package foreign)
		caps.general_caps |= C.IBV_ODP_SUPPORT_IMPLICIT
	}
	of := &caps.per_transport_caps
	of.rc_odp_caps = messages | C.IBV_ODP_SUPPORT_WRITE | C.IBV_ODP_SUPPORT_READ | C.IBV_ODP_SUPPORT_ATOMIC
	of.uc_odp_caps, of.ud_odp_caps = messages|C.IBV_ODP_SUPPORT_WRITE, messages
}

// leastGIDs is the least number of entries that the table of GIDs has, as /sys shows it (package sysclass). Those behind the
// device's addresses are not used.
const leastGIDs = 8

// The physical state of a port, up or not (IBTA Vol. 1, 14.2.5.6).
const (
	physicallyUp       = 5
	physicallyDisabled = 3
)

//export engineQueryPort
func engineQueryPort(context C.uint64_t, out *C.struct_ibv_port_attr) C.int {
	o := contexts.get(uint64(context))
	if o == nil {
		return C.int(syscall.EINVAL)
	}
	*out = C.struct_ibv_port_attr{
		state: C.IBV_PORT_ACTIVE, max_mtu: C.IBV_MTU_4096, active_mtu: C.IBV_MTU_256, gid_tbl_len: C.int(max(leastGIDs, len(o.GIDs()))),
		max_msg_sz: 1 << 31, pkey_tbl_len: 1, port_cap_flags: C.IBV_PORT_CM_SUP, active_width: 2, active_speed: 32,
		phys_state: physicallyUp, link_layer: C.IBV_LINK_LAYER_ETHERNET, max_vl_num: 1,
	}
	if !portActive() {
		out.state, out.phys_state = C.IBV_PORT_DOWN, physicallyDisabled
	}
	for _, gid := range o.GIDs() {
		out.active_mtu = max(out.active_mtu, mtuCode(gid.MTU))
	}
	return 0
}
