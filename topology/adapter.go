package topology

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the adapter block: its keys, what their values may be, and what
// becomes of several blocks that one node has.

// limit is the key of a field of Adapter, or of a part of it, of which each node gets a copy of
// its own.
func limit[M, T any](name string, f form[T], field func(*M) **T, doc string) key[M] {
	return key[M]{
		keyText: keyText{name: name, doc: doc, schema: f.schema, ranges: f.ranges},
		read: func(r *reader, n *yaml.Node) func(*M) {
			v := f.of(r, n)
			return func(m *M) {
				if *field(m) = nil; v.ok {
					*field(m) = new(v.is)
				}
			}
		},
	}
}

// adapterTable is the keys of an adapter block. The ranges are those that
// the provider accepts. They are made when they are first used, for the reason that lazily
// gives.
var adapterTable = sync.OnceValue(func() *keyTable[Adapter] {
	depth := count[uint32](1, 1<<20)
	readLimit := count[uint32](0, 255) // REQ and REP have 8 bits for it
	objects := count[uint32](1, 1<<24)
	objectsOrNone := count[uint32](0, 1<<24)
	systemReadLimit := count[uint32](0, 1<<20) // 0: no such limit (NDK-CAP-02)
	return &keyTable[Adapter]{what: "an adapter", noun: "adapter", def: "adapter", keys: slices.Concat([]key[Adapter]{
		limit("max_registration_size", sized[uint64](sizes, 1, 1<<48), func(a *Adapter) **uint64 { return &a.MaxRegistrationSize }, "bytes of a memory region, $range"),
		limit("max_window_size", sized[uint64](sizes, 0, 1<<48), func(a *Adapter) **uint64 { return &a.MaxWindowSize }, "bytes of a memory window, $range"),
		limit("frmr_page_count", count[uint32](16, 1<<20), func(a *Adapter) **uint32 { return &a.FRMRPageCount }, "pages of a fast-registered region, $range"), // NDK-INFO-03
		limit("max_initiator_request_sge", count[uint32](1, 256), func(a *Adapter) **uint32 { return &a.MaxInitiatorRequestSge }, "elements of the list of a request, $range"),
		limit("max_receive_request_sge", count[uint32](1, 256), func(a *Adapter) **uint32 { return &a.MaxReceiveRequestSge }, "elements of the list of a receive, $range"),
		limit("max_read_request_sge", count[uint32](1, 256), func(a *Adapter) **uint32 { return &a.MaxReadRequestSge }, "elements of the list of a READ, $range; at most `max_initiator_request_sge`"),
		limit("max_transfer_length", sized[uint32](sizes, 1, 1<<31), func(a *Adapter) **uint32 { return &a.MaxTransferLength }, "bytes of a message, $range"), // RC messages end at 2 GiB
		limit("max_inline_data_size", sized[uint32](sizes, 0, 64<<10), func(a *Adapter) **uint32 { return &a.MaxInlineDataSize }, "bytes that a request may carry inline, $range"),
		limit("max_inbound_read_limit", readLimit, func(a *Adapter) **uint32 { return &a.MaxInboundReadLimit }, "READs that the peer may have in progress on a connection, $range"),
		limit("max_outbound_read_limit", readLimit, func(a *Adapter) **uint32 { return &a.MaxOutboundReadLimit }, "READs that a connection may have in progress, $range"),
		limit("max_receive_queue_depth", depth, func(a *Adapter) **uint32 { return &a.MaxReceiveQueueDepth }, "receives of a queue pair, $range"),
		limit("max_initiator_queue_depth", depth, func(a *Adapter) **uint32 { return &a.MaxInitiatorQueueDepth }, "requests of a queue pair, $range"),
		limit("max_srq_depth", count[uint32](0, 1<<20), func(a *Adapter) **uint32 { return &a.MaxSrqDepth }, "receives of an SRQ, $range; 0: no SRQs"), // 0: no SRQs (NDK-INFO-04)
		limit("max_cq_depth", count[uint32](1, 1<<26), func(a *Adapter) **uint32 { return &a.MaxCqDepth }, "completions of a CQ, $range"),
		limit("large_request_threshold", sized[uint32](sizes, 0, math.MaxUint32), func(a *Adapter) **uint32 { return &a.LargeRequestThreshold }, "bytes from which a request counts as large, $range. It is reported; nothing acts on it"),
		limit("max_caller_data", sized[uint32](sizes, 0, 56), func(a *Adapter) **uint32 { return &a.MaxCallerData }, "private bytes of a request to connect, $range"),             // what REQ has room for (roce.md 15.2)
		limit("max_callee_data", sized[uint32](sizes, 0, 148), func(a *Adapter) **uint32 { return &a.MaxCalleeData }, "private bytes of the answer, $range"),                      // what REJ has room for
		limit("vendor_id", identifier(1<<24-1), func(a *Adapter) **uint32 { return &a.VendorID }, "an OUI of 24 bits, `159332` or `0x26e64`. It is reported; nothing acts on it"), // an OUI
		limit("device_id", identifier(math.MaxUint32), func(a *Adapter) **uint32 { return &a.DeviceID }, "a number of 32 bits, decimal or hexadecimal. It is reported; nothing acts on it"),

		limit("in_order_dma_supported", yes, func(a *Adapter) **bool { return &a.InOrderDMASupported }, "`true` or `false`. It is reported; nothing acts on it"),
		limit("rdma_read_sink_not_required", yes, func(a *Adapter) **bool { return &a.RDMAReadSinkNotRequired }, "`true` or `false`"),
		limit("cq_interrupt_moderation_supported", yes, func(a *Adapter) **bool { return &a.CQInterruptModerationSupported }, "`true` or `false`"),
		limit("multi_engine_supported", yes, func(a *Adapter) **bool { return &a.MultiEngineSupported }, "`true` or `false`. It is reported; nothing acts on it"),
		limit("rdma_read_local_invalidate_supported", yes, func(a *Adapter) **bool { return &a.RDMAReadLocalInvalidateSupported }, "`true` or `false`"),
		limit("cq_resize_supported", yes, func(a *Adapter) **bool { return &a.CQResizeSupported }, "`true` or `false`"),
		limit("loopback_connections_supported", yes, func(a *Adapter) **bool { return &a.LoopbackConnectionsSupported }, "`true` or `false`"),

		limit("max_qp_count", count[uint32](1, 1<<18), func(a *Adapter) **uint32 { return &a.MaxQpCount }, "queue pairs of all processes in the node together, $range"),
		limit("max_cq_count", objects, func(a *Adapter) **uint32 { return &a.MaxCqCount }, "CQs of all together, $range"),
		limit("max_mr_count", objects, func(a *Adapter) **uint32 { return &a.MaxMrCount }, "memory regions of all together, $range"),
		limit("max_pd_count", objects, func(a *Adapter) **uint32 { return &a.MaxPdCount }, "protection domains of all together, $range"),
		limit("max_mw_count", objectsOrNone, func(a *Adapter) **uint32 { return &a.MaxMwCount }, "memory windows of all together, $range"),
		limit("max_srq_count", objectsOrNone, func(a *Adapter) **uint32 { return &a.MaxSrqCount }, "SRQs of all together, $range"),
		limit("system_max_inbound_read_limit", systemReadLimit, func(a *Adapter) **uint32 { return &a.SystemMaxInboundReadLimit }, "READs of peers in progress on all connections together, $range; 0: no such limit"),
		limit("system_max_outbound_read_limit", systemReadLimit, func(a *Adapter) **uint32 { return &a.SystemMaxOutboundReadLimit }, "READs in progress on all connections together, $range; 0: no such limit"),

		limit("network_direct", yes, func(a *Adapter) **bool { return &a.NetworkDirect }, "`false`: the adapter starts disabled, for good"),
		limit("roce_frame_size", frameSize, func(a *Adapter) **uint32 { return &a.RoCEFrameSize }, "bytes of payload in a packet: `256`, `512`, `1024`, `2048` or `4096`; absent: the most that the link's MTU allows"),
		limit("receive_buffer", sized[uint32](sizes, 16<<10, 128<<20), func(a *Adapter) **uint32 { return &a.ReceiveBuffer }, "$range, `4MiB` if absent: bytes of packets that may wait at each address until the adapter takes them. All queue pairs of the adapter together have so much in flight, at most, beyond what their paths hold. A simulation has exactly that; a lab what the kernel grants, which `ndklab adapter LAB/NODE` shows: at most 4/9 of twice `net.core.rmem_max` to an ordinary user, 185 KiB where that was never changed"), // two packets at least
		limit("go_back_n", yes, func(a *Adapter) **bool { return &a.GoBackN }, "`true`: after a loss everything behind it is sent again, as with adapters of other makes; else, between two adapters of a lab, only what is missing"),
		limit("reorder_buffer", sized[uint32](sizes, 64<<10, 1<<30), func(a *Adapter) **uint32 { return &a.ReorderBuffer }, "$range, `128MiB` if absent: what all queue pairs of the node together may keep of packets that arrive before one that is missing. What finds no room is dropped as if it were lost, and counted as `early_dropped`"),
		limit("pend", yes, func(a *Adapter) **bool { return &a.Pend }, "`true`: creates and requests complete by callback, even where they could at once, as with drivers of hardware"),
		limit("receive_rate", parameterRate, func(a *Adapter) **uint64 { return &a.ReceiveRate }, "the rate at which it takes what has arrived, $range, as an adapter whose bus or memory is slower than its link. Half of `receive_buffer` may wait before it asks for a [pause](#shared-buffers-and-pfc) of the priorities of `pfc`, and all of it before others are dropped; absent: it takes all at once"),
		limit("turnaround", parameterTimes(0), func(a *Adapter) **time.Duration { return &a.Turnaround }, "of a simulated adapter, from when a packet arrives until the adapter has it, $range, and up to half of that more at random; absent: 8us, the time that a machine takes which is told of packets by interrupts. Adapters in hardware take less than 1us. One in a lab takes the time of its machine, which `dilation` makes short"),
	}, congestionKeys(), []key[Adapter]{
		// It is a field of NDK_ADAPTER_INFO, so that it will be looked for here.
		{keyText{name: "rdma_technology"}, func(r *reader, n *yaml.Node) func(*Adapter) {
			r.valueError(n, "every adapter is RoCEv2, expected no such key")
			return func(*Adapter) {}
		}},
	})}
})

// identifier is a number, decimal or hexadecimal, from 0 to most.
func identifier(most uint32) form[uint32] {
	return single(func(text string) (uint32, error) {
		digits, base := text, 10
		if hex, ok := strings.CutPrefix(text, "0x"); ok {
			digits, base = hex, 16
		}
		n, err := strconv.ParseUint(digits, base, 32)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			return 0, fmt.Errorf("found %s, expected a whole number such as 159332 or 0x26e64", quote(text))
		case err != nil || n > uint64(most):
			return 0, fmt.Errorf("%s is out of range, expected 0x0 to 0x%x", quote(text), most)
		}
		return uint32(n), nil
	}, func() schema { return hexadecimal(uint64(most)) })
}

// frameSizes are the values of *NetworkDirectRoCEFrameSize (ndkpi.md 2.11).
var frameSizes = []uint32{256, 512, 1024, 2048, 4096}

var frameSize = single(func(text string) (uint32, error) {
	for _, size := range frameSizes {
		if text == strconv.FormatUint(uint64(size), 10) {
			return size, nil
		}
	}
	return 0, fmt.Errorf("found %s, expected 256, 512, 1024, 2048 or 4096", quote(text))
}, func() schema {
	var all []any
	for _, size := range frameSizes {
		all = append(all, size, strconv.FormatUint(uint64(size), 10))
	}
	return orVariable(schema{"enum": all})
})

var adapterForm = mapOf(adapterTable, withPlaces)

// resolveAdapter returns the adapter that several blocks make, that of most precedence
// first. It reports what the blocks say that does not go together.
func resolveAdapter(r *reader, blocks layers[Adapter]) Adapter {
	var a Adapter
	blocks.apply(&a)
	at := func(key string) *yaml.Node { return blocks.find(key).at }
	if read, all := a.MaxReadRequestSge, a.MaxInitiatorRequestSge; read != nil && all != nil && *read > *all {
		r.errorf(at("max_read_request_sge"), "max_read_request_sge %d exceeds max_initiator_request_sge %d (line %d), expected at most that",
			*read, *all, at("max_initiator_request_sge").Line)
	}
	depth, number := a.MaxSrqDepth, a.MaxSrqCount
	switch {
	case depth != nil && number != nil:
		if (*depth == 0) != (*number == 0) { // NDK-CAP-04
			r.errorf(at("max_srq_count"), "max_srq_count %d stands with max_srq_depth %d (line %d), expected 0 for both, which is no SRQs, or for neither",
				*number, *depth, at("max_srq_depth").Line)
		}
	case depth != nil && *depth == 0:
		a.MaxSrqCount = new(uint32(0))
	case number != nil && *number == 0:
		a.MaxSrqDepth = new(uint32(0))
	}
	resolveCongestion(r, &a, blocks)
	return a
}
