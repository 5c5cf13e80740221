package topology

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// This file is the adapter block: its keys, what their values may be, and what
// becomes of several blocks that one node has.

// An adapterKey is a key of an adapter block. Its parser makes of a value what
// gives an Adapter that value.
type adapterKey struct {
	name  string
	parse func(string) (func(*Adapter), error)
}

// sets is the key of a field of Adapter, whose values parse reads.
func sets[T any](name string, parse func(string) (T, error), field func(*Adapter) **T) adapterKey {
	return adapterKey{name, func(text string) (func(*Adapter), error) {
		v, err := parse(text)
		// Each node gets a copy of its own.
		return func(a *Adapter) { *field(a) = new(v) }, err
	}}
}

// adapterKeys are the keys of an adapter block. The ranges are what the provider
// accepts. They are made when they are first used, for the reason that lazily
// gives.
var adapterKeys = sync.OnceValue(func() []adapterKey {
	depth := count[uint32](1, 1<<20)
	readLimit := count[uint32](0, 255) // REQ and REP have 8 bits for it
	objects := count[uint32](1, 1<<24)
	objectsOrNone := count[uint32](0, 1<<24)
	systemReadLimit := count[uint32](0, 1<<20) // 0: no such limit (NDK-CAP-02)
	return []adapterKey{
		sets("max_registration_size", sized[uint64](sizes, 1, 1<<48), func(a *Adapter) **uint64 { return &a.MaxRegistrationSize }),
		sets("max_window_size", sized[uint64](sizes, 0, 1<<48), func(a *Adapter) **uint64 { return &a.MaxWindowSize }),
		sets("frmr_page_count", count[uint32](16, 1<<20), func(a *Adapter) **uint32 { return &a.FRMRPageCount }), // NDK-INFO-03
		sets("max_initiator_request_sge", count[uint32](1, 256), func(a *Adapter) **uint32 { return &a.MaxInitiatorRequestSge }),
		sets("max_receive_request_sge", count[uint32](1, 256), func(a *Adapter) **uint32 { return &a.MaxReceiveRequestSge }),
		sets("max_read_request_sge", count[uint32](1, 256), func(a *Adapter) **uint32 { return &a.MaxReadRequestSge }),
		sets("max_transfer_length", sized[uint32](sizes, 1, 1<<31), func(a *Adapter) **uint32 { return &a.MaxTransferLength }), // RC messages end at 2 GiB
		sets("max_inline_data_size", sized[uint32](sizes, 0, 64<<10), func(a *Adapter) **uint32 { return &a.MaxInlineDataSize }),
		sets("max_inbound_read_limit", readLimit, func(a *Adapter) **uint32 { return &a.MaxInboundReadLimit }),
		sets("max_outbound_read_limit", readLimit, func(a *Adapter) **uint32 { return &a.MaxOutboundReadLimit }),
		sets("max_receive_queue_depth", depth, func(a *Adapter) **uint32 { return &a.MaxReceiveQueueDepth }),
		sets("max_initiator_queue_depth", depth, func(a *Adapter) **uint32 { return &a.MaxInitiatorQueueDepth }),
		sets("max_srq_depth", count[uint32](0, 1<<20), func(a *Adapter) **uint32 { return &a.MaxSrqDepth }), // 0: no SRQs (NDK-INFO-04)
		sets("max_cq_depth", count[uint32](1, 1<<26), func(a *Adapter) **uint32 { return &a.MaxCqDepth }),
		sets("large_request_threshold", sized[uint32](sizes, 0, math.MaxUint32), func(a *Adapter) **uint32 { return &a.LargeRequestThreshold }),
		sets("max_caller_data", sized[uint32](sizes, 0, 56), func(a *Adapter) **uint32 { return &a.MaxCallerData }),  // what REQ has room for (roce.md 15.2)
		sets("max_callee_data", sized[uint32](sizes, 0, 148), func(a *Adapter) **uint32 { return &a.MaxCalleeData }), // what REJ has room for
		sets("vendor_id", identifier(1<<24-1), func(a *Adapter) **uint32 { return &a.VendorID }),                     // an OUI
		sets("device_id", identifier(math.MaxUint32), func(a *Adapter) **uint32 { return &a.DeviceID }),

		sets("in_order_dma_supported", yes, func(a *Adapter) **bool { return &a.InOrderDMASupported }),
		sets("rdma_read_sink_not_required", yes, func(a *Adapter) **bool { return &a.RDMAReadSinkNotRequired }),
		sets("cq_interrupt_moderation_supported", yes, func(a *Adapter) **bool { return &a.CQInterruptModerationSupported }),
		sets("multi_engine_supported", yes, func(a *Adapter) **bool { return &a.MultiEngineSupported }),
		sets("rdma_read_local_invalidate_supported", yes, func(a *Adapter) **bool { return &a.RDMAReadLocalInvalidateSupported }),
		sets("cq_resize_supported", yes, func(a *Adapter) **bool { return &a.CQResizeSupported }),
		sets("loopback_connections_supported", yes, func(a *Adapter) **bool { return &a.LoopbackConnectionsSupported }),

		sets("max_qp_count", count[uint32](1, 1<<18), func(a *Adapter) **uint32 { return &a.MaxQpCount }),
		sets("max_cq_count", objects, func(a *Adapter) **uint32 { return &a.MaxCqCount }),
		sets("max_mr_count", objects, func(a *Adapter) **uint32 { return &a.MaxMrCount }),
		sets("max_pd_count", objects, func(a *Adapter) **uint32 { return &a.MaxPdCount }),
		sets("max_mw_count", objectsOrNone, func(a *Adapter) **uint32 { return &a.MaxMwCount }),
		sets("max_srq_count", objectsOrNone, func(a *Adapter) **uint32 { return &a.MaxSrqCount }),
		sets("system_max_inbound_read_limit", systemReadLimit, func(a *Adapter) **uint32 { return &a.SystemMaxInboundReadLimit }),
		sets("system_max_outbound_read_limit", systemReadLimit, func(a *Adapter) **uint32 { return &a.SystemMaxOutboundReadLimit }),

		sets("network_direct", yes, func(a *Adapter) **bool { return &a.NetworkDirect }),
		sets("roce_frame_size", frameSize, func(a *Adapter) **uint32 { return &a.RoCEFrameSize }),
		sets("receive_buffer", sized[uint32](sizes, 16<<10, 128<<20), func(a *Adapter) **uint32 { return &a.ReceiveBuffer }), // two packets at least
		sets("go_back_n", yes, func(a *Adapter) **bool { return &a.GoBackN }),
		sets("reorder_buffer", sized[uint32](sizes, 64<<10, 1<<30), func(a *Adapter) **uint32 { return &a.ReorderBuffer }),
		sets("pend", yes, func(a *Adapter) **bool { return &a.Pend }),
	}
})

// identifier is a parser for a number, decimal or hexadecimal, from 0 to most.
func identifier(most uint32) func(string) (uint32, error) {
	return func(text string) (uint32, error) {
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
	}
}

// frameSize is a parser for what *NetworkDirectRoCEFrameSize may be (ndkpi.md
// 2.11).
func frameSize(text string) (uint32, error) {
	for _, size := range []uint32{256, 512, 1024, 2048, 4096} {
		if text == strconv.FormatUint(uint64(size), 10) {
			return size, nil
		}
	}
	return 0, fmt.Errorf("found %s, expected 256, 512, 1024, 2048 or 4096", quote(text))
}

// An adapter is an adapter block: what it gives, by key.
type adapter map[string]val[func(*Adapter)]

func (r *reader) adapter(n *yaml.Node) adapter {
	m := adapter{}
	keys := adapterKeys()
	fields := make([]field, 0, len(keys)+1)
	for _, k := range keys {
		fields = append(fields, field{k.name, func(n *yaml.Node) { m[k.name] = scalar(r, n, k.parse) }})
	}
	// It is a field of NDK_ADAPTER_INFO, so that it will be looked for here.
	fields = append(fields, field{"rdma_technology", func(n *yaml.Node) {
		r.valueError(n, "every adapter is RoCEv2, expected no such key")
	}})
	r.fields(n, "an adapter", fields...)
	return m
}

// or is a with what it does not give taken from a block of less precedence.
func (a adapter) or(less adapter) adapter {
	switch {
	case len(less) == 0:
		return a
	case len(a) == 0:
		return less
	}
	all := maps.Clone(less)
	maps.Copy(all, a)
	return all
}

// resolveAdapter is a node's adapter as Topology has it. It reports what the
// file says of it that does not go together, which may be of several blocks.
func (r *reader) resolveAdapter(m adapter) Adapter {
	var a Adapter
	for _, v := range m {
		if v.ok {
			v.is(&a)
		}
	}
	if read, all := a.MaxReadRequestSge, a.MaxInitiatorRequestSge; read != nil && all != nil && *read > *all {
		r.errorf(m["max_read_request_sge"].at, "max_read_request_sge %d exceeds max_initiator_request_sge %d (line %d), expected at most that",
			*read, *all, m["max_initiator_request_sge"].at.Line)
	}
	depth, number := a.MaxSrqDepth, a.MaxSrqCount
	switch {
	case depth != nil && number != nil:
		if (*depth == 0) != (*number == 0) { // NDK-CAP-04
			r.errorf(m["max_srq_count"].at, "max_srq_count %d stands with max_srq_depth %d (line %d), expected 0 for both, which is no SRQs, or for neither",
				*number, *depth, m["max_srq_depth"].at.Line)
		}
	case depth != nil && *depth == 0:
		a.MaxSrqCount = new(uint32(0))
	case number != nil && *number == 0:
		a.MaxSrqDepth = new(uint32(0))
	}
	return a
}
