package provider_test

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/provider"
)

const (
	opFlagsOfAll   = provider.OpSilentSuccess | provider.OpReadFence | provider.OpDefer
	opFlagsOfSend  = opFlagsOfAll | provider.OpSendAndSolicitEvent | provider.OpInline
	opFlagsOfWrite = opFlagsOfAll | provider.OpInline
	opFlagsOfRead  = opFlagsOfAll | provider.OpReadLocalInvalidate
	opFlagsOfBind  = opFlagsOfAll | provider.OpAllowRemoteRead | provider.OpAllowRemoteWrite
	opFlagsOfFast  = opFlagsOfBind | provider.OpAllowLocalWrite | provider.OpReadSink
)

// actPost posts one request.
func (m *model) actPost(q *modelQP) {
	m.added++
	w := &work{n: m.added}
	for _, f := range []provider.OpFlags{provider.OpSilentSuccess, provider.OpReadFence, provider.OpDefer} {
		if m.oneIn(4, "flag") {
			w.flags |= f
		}
	}
	if m.oneIn(30, "wrong flag") {
		w.flags |= pick(m, "which", []provider.OpFlags{0x400, provider.OpReadSink, provider.OpAllowRemoteRead})
	}
	switch pick(m, "operation", []string{"send", "send", "write", "write", "read", "read", "send and invalidate", "bind", "fast-register", "fast-register", "invalidate"}) {
	case "send":
		m.postSend(q, w)
	case "send and invalidate":
		w.inv = true
		m.postSend(q, w)
	case "write":
		m.postWrite(q, w)
	case "read":
		m.postRead(q, w)
	case "bind":
		m.postBind(q, w)
	case "fast-register":
		m.postFastRegister(q, w)
	case "invalidate":
		m.postInvalidate(q, w)
	}
}

// pieces draws the SGL of a request.
func (m *model) pieces(q *modelQP, w *work, need right) {
	w.sgl = m.modelSGL(q.pd, need, m.oneIn(15, "bad memory"))
	if m.oneIn(20, "long SGL") {
		w.sgl = append(w.sgl, make([]provider.SGE, modelSGE)...)
	}
	if (w.op == provider.OperationTypeSend || w.op == provider.OperationTypeWrite) && m.oneIn(5, "inline") {
		w.flags |= provider.OpInline
		w.sgl = nil
		for range m.below(6, "pieces") {
			data := slices.Repeat([]byte{byte(w.n)}, m.below(25, "inline bytes"))
			w.sgl = append(w.sgl, provider.SGE{Length: uint32(len(data)), Inline: data, MemoryRegionToken: 0xBAD})
			w.data = append(w.data, data...)
		}
		if w.data == nil {
			w.data = []byte{}
		}
	}
}

func (m *model) postSend(q *modelQP, w *work) {
	w.op = provider.OperationTypeSend
	if m.oneIn(3, "solicit") {
		w.flags |= provider.OpSendAndSolicitEvent
	}
	m.pieces(q, w, localRead)
	w.call = func() provider.Status { return q.Send(w, w.sgl, w.flags) }
	if w.inv {
		if r := m.remote(q, func(r *modelRegion) bool { return r.grant != nil && r.rights&6 != 0 }); r != nil {
			w.token = r.token
		}
		w.call = func() provider.Status { return q.SendAndInvalidate(w, w.sgl, w.flags, w.token) }
	}
	m.post(q, w, opFlagsOfSend, modelSGE)
}

func (m *model) postWrite(q *modelQP, w *work) {
	w.op = provider.OperationTypeWrite
	m.pieces(q, w, localRead)
	m.aim(q, w, remoteWrite)
	w.call = func() provider.Status { return q.Write(w, w.sgl, w.va, w.token, w.flags) }
	m.post(q, w, opFlagsOfWrite, modelSGE)
}

func (m *model) postRead(q *modelQP, w *work) {
	w.op = provider.OperationTypeRead
	m.pieces(q, w, readSink)
	m.aim(q, w, remoteRead)
	if m.oneIn(3, "local invalidate") {
		w.flags |= provider.OpReadLocalInvalidate
		for _, r := range m.regions(q.of.device) {
			if r.grant != nil && r.pd == q.pd && r.allows(readSink) && r.memory.length() > 0 {
				n := min(uint32(r.memory.length()), uint32(m.below(5000, "length")))
				w.sgl = append([]provider.SGE{{VirtualAddress: r.base, Length: n, MemoryRegionToken: r.token}}, w.sgl[:min(1, len(w.sgl))]...)
			}
		}
	}
	w.call = func() provider.Status { return q.Read(w, w.sgl, w.va, w.token, w.flags) }
	m.post(q, w, opFlagsOfRead, modelSGE-1)
}

// regions are those of a device whose tokens are valid, in a fixed order.
func (m *model) regions(d *modelDevice) (all []*modelRegion) {
	for _, r := range d.tokens {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *modelRegion) int { return int(a.token) - int(b.token) })
	return all
}

// remote is a region at the peer, as wanted or now and then any.
func (m *model) remote(q *modelQP, suits func(*modelRegion) bool) *modelRegion {
	var good, bad, foreign []*modelRegion
	d := m.devices[1-q.of.device.n]
	peer := q.peer()
	if peer != nil {
		d = peer.of.device
	}
	for _, r := range m.regions(d) {
		switch {
		case peer == nil || r.pd != peer.pd:
			foreign = append(foreign, r)
		case suits(r):
			good = append(good, r)
		default:
			bad = append(bad, r)
		}
	}
	switch m.below(24, "wrong token") {
	case 22:
		good = bad
	case 23:
		good = foreign
	}
	if len(good) == 0 {
		return nil
	}
	return pick(m, "region", good)
}

// aim draws the remote address and token of a request, and makes the request fit
// what is there, unless it is to fail.
func (m *model) aim(q *modelQP, w *work, need right) {
	r := m.remote(q, func(r *modelRegion) bool { return r.allows(need) && r.memory.length() > 0 })
	if r == nil {
		// With nowhere to go but a token that was never given out, a request of no
		// length succeeds, and others now and then are to fail.
		if w.token = 0x00BAD000; !m.oneIn(8, "no token") {
			w.sgl, w.data = nil, []byte{}
		}
		return
	}
	size := r.memory.length()
	if lengthOf(w.sgl) > size && !m.oneIn(10, "too long") {
		w.sgl = w.sgl[:0]
		w.data = []byte{}
	}
	w.token = r.token
	w.va = r.base + uint64(m.below(max(1, size-lengthOf(w.sgl)+1), "offset"))
	if m.oneIn(25, "out of bounds") {
		w.va = r.base + uint64(size-lengthOf(w.sgl)+1)
	}
}

// modelSGL draws an SGL with the domain's memory, which allows what is needed
// unless it is to be bad.
func (m *model) modelSGL(pd *modelPD, need right, bad bool) (sgl []provider.SGE) {
	var good, all []*modelRegion
	for _, r := range m.regions(pd.of.device) {
		if all = append(all, r); r.pd == pd && r.allows(need) && r.memory.length() > 0 && len(r.lams) == 0 {
			good = append(good, r)
		}
	}
	if bad {
		good = all
	}
	for range pick(m, "pieces", []int{1, 0, 2, modelSGE}) {
		if l := anyOf(m, "LAM", pd.of.lams); l != nil && m.oneIn(5, "logical") {
			i := m.below(len(l.pages), "page")
			page := l.page(i)
			at := m.below(provider.PageSize, "at")
			n := m.below(provider.PageSize-at+1, "bytes")
			if _, ok := page.part(uint64(at), uint64(n)); ok || bad {
				sgl = append(sgl, provider.SGE{VirtualAddress: uint64(l.pages[i]) + uint64(at), Length: uint32(n),
					MemoryRegionToken: pd.object.(*provider.PD).PrivilegedMemoryRegionToken()})
			}
			continue
		}
		if len(good) == 0 {
			continue
		}
		r := pick(m, "region", good)
		n := min(pick(m, "bytes", []int{100, 0, 1, 4096, 5000, 333}), r.memory.length())
		sge := provider.SGE{
			VirtualAddress: r.base + uint64(m.below(max(1, r.memory.length()-n+1), "offset")), Length: uint32(n), MemoryRegionToken: r.token,
		}
		if bad && m.oneIn(3, "stale") {
			sge.MemoryRegionToken++
		}
		if bad && m.oneIn(3, "beyond") {
			sge.VirtualAddress = r.base + uint64(r.memory.length()-n+1)
		}
		sgl = append(sgl, sge)
	}
	return sgl
}

func (m *model) postBind(q *modelQP, w *work) {
	mr, mw := anyOf(m, "MR", q.of.mrs), anyOf(m, "MW", q.of.mws)
	if mr == nil || mw == nil {
		return
	}
	w.op, w.grant = provider.OperationTypeBind, mw.grant
	w.flags |= pick(m, "access", []provider.OpFlags{0x38, 0x38, 8, 0x30, 0, 0x20, 0x10})
	var at, n uint64
	refuse := func(s provider.Status, wrong bool) {
		if wrong {
			w.refused = append(w.refused, s)
		}
	}
	refuse(provider.StatusInvalidParameter, mr.region == nil || mr.pd != mw.grant.pd || w.flags&0x30 == 0x20 || w.flags&0x30 == 0x10 || mw.grant.pd != q.pd)
	if r := mr.region; r != nil {
		size := r.memory.length()
		n = uint64(1 + m.below(size, "length"))
		at = uint64(m.below(size-int(n)+1, "offset"))
		if m.oneIn(10, "beyond") {
			at++
		}
		refuse(provider.StatusInvalidParameter, at+n > uint64(size))
		refuse(provider.StatusAccessViolation, w.flags&0x30 == 0x30 && r.rights&1 == 0)
		w.va = r.base + at
	}
	refuse(provider.StatusInvalidParameter, mw.grant.region != nil)
	if len(w.refused) == 0 {
		rights := provider.MRFlags(w.flags & 8 >> 2)
		if w.flags&0x30 == 0x30 {
			rights |= 5
		}
		memory, _ := mr.region.memory.part(at, n)
		w.region, w.bind = &modelRegion{base: w.va, rights: rights, memory: memory, window: true}, mr
	}
	w.call = func() provider.Status { return q.Bind(w, mr.MR, mw.MW, w.va, n, w.flags) }
	m.postLocal(q, w, opFlagsOfBind|provider.OpAllowLocalWrite)
}

func (m *model) postFastRegister(q *modelQP, w *work) {
	mr, l := anyOf(m, "MR", q.of.mrs), anyOf(m, "LAM", q.of.lams)
	for range 3 {
		if mr != nil && (!mr.fast || mr.pd != q.pd) {
			mr = anyOf(m, "MR", q.of.mrs)
		}
	}
	if mr == nil || l == nil {
		return
	}
	w.op, w.grant = provider.OperationTypeFastRegister, mr.grant
	w.flags |= pick(m, "access", []provider.OpFlags{0xB8, 0xB8, 0x38, 0x10, 0x90, 8, 0, 0x20})
	var pages []provider.LogicalAddress
	var memory spans
	count := pick(m, "pages", []int{1, 2, 3})
	for range count {
		i := m.below(len(l.pages), "page")
		pages = append(pages, l.pages[i])
		memory = append(memory, l.page(i)...)
	}
	fbo := pick(m, "FBO", []int{0, l.fbo, 100, 4095})
	if mr.fast && count > int(mr.maxPages) && !m.oneIn(4, "too many pages") {
		return
	}
	room := count*provider.PageSize - fbo
	n := 1 + m.below(room, "length")
	va := uint64(fbo) + provider.PageSize*uint64(m.below(3, "base"))
	refuse := func(s provider.Status, wrong bool) {
		if wrong {
			w.refused = append(w.refused, s)
		}
	}
	switch m.below(20, "wrong") {
	case 17:
		n = room + 1
		refuse(provider.StatusInvalidParameter, true)
	case 18:
		va++
		refuse(provider.StatusInvalidParameter, true)
	case 19:
		pages[0]++
		refuse(provider.StatusInvalidParameter, true)
	}
	refuse(provider.StatusInvalidParameter, !mr.fast || mr.pd != q.pd || w.flags&0x30 == 0x20)
	refuse(provider.StatusInvalidDeviceState, mr.fast && mr.maxPages == 0)
	refuse(provider.StatusInvalidParameter, mr.fast && count > int(mr.maxPages))
	refuse(provider.StatusAccessViolation, mr.fast && !mr.remote && w.flags&0x28 != 0)
	refuse(provider.StatusInvalidParameter, mr.grant != nil && mr.grant.region != nil)
	if len(w.refused) == 0 {
		memory, _ := withHoles(memory, uint64(fbo), uint64(n))
		w.region = &modelRegion{base: va, memory: memory, rights: provider.MRFlags(w.flags&8>>2 | w.flags&0x30>>4&1 | w.flags&0x20>>3 | w.flags&0x80>>4), lams: []*modelLAM{l}}
	}
	w.call = func() provider.Status { return q.FastRegister(w, mr.MR, pages, uint32(fbo), uint64(n), va, w.flags) }
	m.postLocal(q, w, opFlagsOfFast)
}

// withHoles is a part of memory, holes included.
func withHoles(s spans, at, n uint64) (part spans, ok bool) {
	for _, p := range s {
		skip := min(at, uint64(p.n))
		take := min(n, uint64(p.n)-skip)
		at, n = at-skip, n-take
		if take > 0 {
			part = append(part, span{p.in, p.at + int(skip), int(take)})
		}
	}
	return part, n == 0
}

func (m *model) postInvalidate(q *modelQP, w *work) {
	w.op = provider.OperationTypeInvalidate
	var object provider.Object
	if mr, mw := anyOf(m, "MR", q.of.mrs), anyOf(m, "MW", q.of.mws); mr != nil && (mw == nil || m.coin("MR")) {
		object, w.grant = mr.MR, mr.grant
		if !mr.fast || mr.pd != q.pd {
			w.refused = append(w.refused, provider.StatusInvalidParameter)
		}
	} else if mw != nil {
		object, w.grant = mw.MW, mw.grant
		if mw.grant.pd != q.pd {
			w.refused = append(w.refused, provider.StatusInvalidParameter)
		}
	} else {
		return
	}
	if w.grant == nil || w.grant.region == nil {
		w.refused = append(w.refused, provider.StatusInvalidDeviceRequest)
	} else if m.blockedOn(w.grant.region) {
		return
	}
	w.call = func() provider.Status { return q.Invalidate(w, object, w.flags) }
	m.postLocal(q, w, opFlagsOfAll)
}

// postLocal posts a request that is carried out here, unless when that is would
// depend on the network.
func (m *model) postLocal(q *modelQP, w *work, allowed provider.OpFlags) {
	m.post(q, w, allowed, 0)
}

// modelPieces is an SGL for people: bytes at addresses under tokens.
type modelPieces []provider.SGE

func (p modelPieces) String() string {
	s := fmt.Sprintf("%d bytes", lengthOf(p))
	for _, sge := range p {
		s += fmt.Sprintf(" (%d at %#x of %#x)", sge.Length, sge.VirtualAddress, sge.MemoryRegionToken)
	}
	return s
}
