package verbs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A world is two devices on a simulated network in virtual time.
type world struct {
	t     testing.TB
	clock *clock.Virtual
	path  *sim.Impaired
	hosts [2]*host
}

// A host is a device with what nearly every test needs on it.
type host struct {
	*verbs.Context
	world    *world
	device   *provider.Miniport
	address  netip.Addr // the first
	pd       *verbs.PD
	cq       *verbs.CQ
	notified int // times, of cq
	memory   []byte
	mr       *verbs.MR // of memory, with every right, at base
	events   []string
	class    uint8              // traffic class that its queue pairs are to send
	errors   []provider.QPError // that the device was told of
	unknown  bool               // at the last of these the program had not been notified
}

const (
	base = 0x1000_0000
	size = 1 << 20
	all  = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessBindWindow
)

func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	return newWorldOver(t, seed, func(c provider.Carrier) provider.Carrier { return c })
}

// newWorldOver is newWorld with other carriers, made of those of the network.
func newWorldOver(t testing.TB, seed uint64, over func(provider.Carrier) provider.Carrier) *world {
	t.Helper()
	return newWorldAt(t, seed, 1, over)
}

// addressOn is one of the addresses of a host.
func addressOn(i, which int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(which), byte(i + 1)})
}

// newWorldAt is newWorldOver with several addresses on each host.
func newWorldAt(t testing.TB, seed uint64, addresses int, over func(provider.Carrier) provider.Carrier) *world {
	t.Helper()
	w := &world{t: t, clock: clock.NewVirtual()}
	w.path = &sim.Impaired{Rand: rand.New(rand.NewPCG(seed, 2)), Delay: 10 * time.Microsecond, Rate: 10e9}
	network := sim.NewNetwork(w.clock, w.path)
	for i := range w.hosts {
		h := &host{world: w, address: addressOn(i, 0), memory: make([]byte, size)}
		at := []netip.Addr{h.address}
		for which := 1; which < addresses; which++ {
			at = append(at, addressOn(i, which))
		}
		configuration := provider.DefaultConfiguration()
		configuration.NetworkDirectRoCEFrameSize = 0
		device, err := provider.NewMiniport(provider.Config{
			Carrier: over(network.Attach(4200, at...)), Clock: w.clock, Rand: rand.New(rand.NewPCG(seed, uint64(i))),
			Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Configuration: &configuration,
			QPError: func(e provider.QPError) { h.errors, h.unknown = append(h.errors, e), h.notified == 0 },
		})
		h.device = device
		h.Context, err = verbs.Open(must(t, device, err), verbs.DefaultLimits(), h.noteEvent)
		check(t, err)
		h.pd, err = h.AllocPD()
		check(t, err)
		h.cq, err = h.CreateCQ(1000, func() { h.notified++ })
		check(t, err)
		h.mr, err = h.pd.RegisterMR(verbs.Bytes(h.memory), size, base, all)
		check(t, err)
		for j := range h.memory {
			h.memory[j] = byte(j*7 + j>>8 + i)
		}
		w.hosts[i] = h
	}
	return w
}

func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	check(t, err)
	return v
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var eventNames = map[verbs.EventType]string{
	verbs.EventCQError: "cq error", verbs.EventQPFatal: "qp fatal", verbs.EventQPRequestError: "request error",
	verbs.EventQPAccessError: "access error", verbs.EventCommunicationEstablished: "established",
	verbs.EventSendQueueDrained: "drained", verbs.EventDeviceFatal: "device fatal", verbs.EventSRQError: "srq error",
	verbs.EventSRQLimitReached: "srq limit", verbs.EventLastWQEReached: "last wqe",
}

func (h *host) noteEvent(e verbs.Event) { h.events = append(h.events, eventNames[e.Type]) }

// happened compares the events since it was last called.
func (h *host) happened(want ...string) {
	h.world.t.Helper()
	h.world.clock.Run(0)
	if !slices.Equal(h.events, want) {
		h.world.t.Errorf("events %q, want %q", h.events, want)
	}
	h.events = nil
}

// run lets a second pass.
func (w *world) run() { w.clock.Run(time.Second) }

// piece is n bytes of the host's memory, from offset.
func (h *host) piece(offset, n int) rc.SGE {
	return rc.SGE{Address: base + uint64(offset), Length: uint32(n), Token: h.mr.Key()}
}

// create makes a queue pair on the host's CQ; change may be nil.
func (h *host) create(kind verbs.QPType, change func(*verbs.QPConfig)) *verbs.QP {
	h.world.t.Helper()
	cfg := verbs.QPConfig{
		Type: kind, SendCQ: h.cq, ReceiveCQ: h.cq, SignalAll: true,
		Capacity: verbs.Capacity{SendDepth: 64, ReceiveDepth: 64, SendSGEs: 4, ReceiveSGEs: 4, Inline: 256},
	}
	if change != nil {
		change(&cfg)
	}
	qp, err := h.pd.CreateQP(cfg)
	return must(h.world.t, qp, err)
}

func (w *world) modify(qp *verbs.QP, a verbs.Attributes, mask verbs.AttributeMask) {
	w.t.Helper()
	if err := qp.Modify(&a, mask|verbs.MaskState); err != nil {
		w.t.Fatalf("to state %d: %v", a.State, err)
	}
}

const qkey = 0x11111111

// toInit, toReceive and toSend take a queue pair of a host on its way; to the other host's.
func (h *host) toInit(qp *verbs.QP) {
	h.world.t.Helper()
	a := verbs.Attributes{State: verbs.Init, Port: 1, Access: all &^ verbs.AccessBindWindow, QKey: qkey}
	mask := verbs.MaskPKeyIndex | verbs.MaskPort
	if kindOf(qp) == verbs.UD {
		mask |= verbs.MaskQKey
	} else {
		mask |= verbs.MaskAccess
	}
	h.world.modify(qp, a, mask)
}

func (h *host) toReceive(qp, peer *verbs.QP) {
	h.world.t.Helper()
	a := verbs.Attributes{
		State: verbs.ReadyToReceive, PathMTU: 1024, DestQPN: peer.Number(), ReceivePSN: psnOf(peer), MaxDestReads: 4, MinRNRTimer: 1,
		Address: verbs.Address{Remote: h.peer().address, Port: 1, TrafficClass: h.class},
	}
	mask := verbs.MaskAddress | verbs.MaskPathMTU | verbs.MaskDestQPN | verbs.MaskReceivePSN
	switch kindOf(qp) {
	case verbs.RC:
		mask |= verbs.MaskMaxDestReads | verbs.MaskMinRNRTimer
	case verbs.UD:
		mask = 0
	}
	h.world.modify(qp, a, mask)
}

func (h *host) toSend(qp *verbs.QP) {
	h.world.t.Helper()
	a := verbs.Attributes{State: verbs.ReadyToSend, SendPSN: psnOf(qp), Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxReads: 4}
	mask := verbs.MaskSendPSN
	if kindOf(qp) == verbs.RC {
		mask |= verbs.MaskTimeout | verbs.MaskRetryCount | verbs.MaskRNRRetry | verbs.MaskMaxReads
	}
	h.world.modify(qp, a, mask)
}

func (h *host) peer() *host {
	if h == h.world.hosts[0] {
		return h.world.hosts[1]
	}
	return h.world.hosts[0]
}

func kindOf(qp *verbs.QP) verbs.QPType {
	_, cfg := qp.Query()
	return cfg.Type
}

// psnOf is the PSN of the first packet that a queue pair sends: near the wrap.
func psnOf(qp *verbs.QP) uint32 { return 0xFFFFF0 + qp.Number()%16 }

// pair makes a queue pair on each host, connected with each other and ready to send.
func (w *world) pair(kind verbs.QPType, change func(*verbs.QPConfig)) (qps [2]*verbs.QP) {
	w.t.Helper()
	for i, h := range w.hosts {
		qps[i] = h.create(kind, change)
		h.toInit(qps[i])
	}
	for i, h := range w.hosts {
		h.toReceive(qps[i], qps[1-i])
	}
	for i, h := range w.hosts {
		h.toSend(qps[i])
	}
	return qps
}

// post posts requests, which must be taken.
func (w *world) post(qp *verbs.QP, requests ...verbs.SendRequest) {
	w.t.Helper()
	if i, err := qp.Post(requests); err != nil {
		w.t.Fatalf("request %d: %v", i, err)
	}
}

// receive posts a receive of n bytes at an offset.
func (h *host) receive(qp *verbs.QP, id uint64, offset, n int) {
	h.world.t.Helper()
	if _, err := qp.Receive([]verbs.ReceiveRequest{{ID: id, SGL: []rc.SGE{h.piece(offset, n)}}}); err != nil {
		h.world.t.Fatal(err)
	}
}

// request is a request with an ID for n bytes of the host's memory from offset on, and the peer's from remote on.
func (h *host) request(op rc.Op, id uint64, offset, n, remote int) verbs.SendRequest {
	r := verbs.SendRequest{ID: id}
	r.Op, r.SGL = op, []rc.SGE{h.piece(offset, n)}
	r.VA, r.Token = base+uint64(remote), h.peer().mr.Key()
	return r
}

var opcodeNames = map[verbs.Opcode]string{
	verbs.OpcodeSend: "send", verbs.OpcodeWrite: "write", verbs.OpcodeRead: "read", verbs.OpcodeCompareSwap: "swap",
	verbs.OpcodeFetchAdd: "add", verbs.OpcodeBindWindow: "bind", verbs.OpcodeLocalInvalidate: "invalidate",
	verbs.OpcodeAtomicWrite: "atomic write", verbs.OpcodeReceive: "receive", verbs.OpcodeReceiveWrite: "receive write",
}

// completed lets a second pass and compares the completions on the host's CQ: "opcode ID", then the status if it is no
// success, the bytes of a receive, and what else there is.
func (h *host) completed(want ...string) {
	h.world.t.Helper()
	h.world.run()
	var got []string
	var c [3]verbs.Completion
	for n := h.cq.Poll(c[:]); n > 0; n = h.cq.Poll(c[:]) {
		for _, c := range c[:n] {
			got = append(got, describe(c))
		}
	}
	if !slices.Equal(got, want) {
		h.world.t.Errorf("completed\n%q, want\n%q", got, want)
	}
}

func describe(c verbs.Completion) string {
	s := fmt.Sprint(opcodeNames[c.Opcode], " ", c.ID)
	if c.Status != verbs.Success {
		return fmt.Sprint(s, " status ", c.Status)
	}
	if c.Opcode >= verbs.OpcodeReceive {
		s += fmt.Sprint(" of ", c.Bytes)
	}
	if c.Flags&verbs.HasImmediate != 0 {
		s += fmt.Sprintf(" immediate %#x", c.Immediate)
	}
	if c.Flags&verbs.HasInvalidated != 0 {
		s += " invalidated"
	}
	if c.Flags&verbs.HasGRH != 0 {
		s += " grh"
	}
	s += map[verbs.Network]string{verbs.NetworkIPv4: " IPv4", verbs.NetworkIPv6: " IPv6"}[c.Network]
	return s
}

// refused fails the test unless the error is that one.
func refused(t testing.TB, what string, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
