package provider_test

import (
	"math"

	"github.com/ndklab/ndklab/provider"
)

// A right allows one kind of access to memory, which a request needs.
type right int

const (
	localRead right = iota
	localWrite
	readSink
	remoteRead
	remoteWrite
)

// A span is a piece of an arena; without one it is a hole.
type span struct {
	in    *arena
	at, n int
}

type spans []span

func (s spans) length() (n int) {
	for i := range s {
		n += s[i].n
	}
	return n
}

// part is n bytes from at on; false if they are not all there.
func (s spans) part(at, n uint64) (part spans, ok bool) {
	if length := uint64(s.length()); at > length || n > length-at {
		return nil, false
	}
	for _, p := range s {
		skip := min(at, uint64(p.n))
		take := min(n, uint64(p.n)-skip)
		at, n = at-skip, n-take
		if take == 0 {
			continue
		}
		if p.in == nil {
			return nil, false
		}
		part = append(part, span{p.in, p.at + int(skip), int(take)})
	}
	return part, true
}

// bytes returns the bytes that ought to be there.
func (s spans) bytes() (b []byte) {
	for _, p := range s {
		b = append(b, p.in.want[p.at:p.at+p.n]...)
	}
	return b
}

// put notes that data, as far as there is room, is there now.
func (s spans) put(data []byte) {
	for _, p := range s {
		data = data[copy(p.in.want[p.at:p.at+p.n], data):]
	}
}

// A modelRegion describes what a token grants.
type modelRegion struct {
	token  uint32
	pd     *modelPD
	base   uint64
	rights provider.MRFlags
	memory spans
	window bool
	grant  *modelGrant // of an FRMR's or a window's
	lams   []*modelLAM
}

// A modelGrant is an FRMR's or window's: its region changes with requests.
type modelGrant struct {
	pd     *modelPD
	region *modelRegion // nil while there is none
	bound  *modelMR     // of a window
	newest func() uint32
	token  uint32 // the newest
}

// allows is the table of ndkpi.md 2.5.
func (r *modelRegion) allows(w right) bool {
	switch w {
	case localRead:
		return !r.window
	case localWrite:
		return !r.window && r.rights&1 != 0
	case readSink:
		return !r.window && r.rights&1 != 0 &&
			(r.rights&8 != 0 || r.pd.m.info.AdapterFlags&provider.AdapterReadSinkNotRequired != 0)
	case remoteRead:
		return r.rights&2 != 0
	default:
		return r.rights&4 != 0
	}
}

// access is the memory that a token grants a queue pair.
func (q *modelQP) access(token uint32, va, n uint64, w right) (spans, bool) {
	r := q.of.device.tokens[token]
	if r == nil || r.pd != q.pd || !r.allows(w) {
		return nil, false
	}
	for _, l := range r.lams {
		if l.gone {
			return nil, false
		}
	}
	if va < r.base {
		return nil, false
	}
	return r.memory.part(va-r.base, n)
}

// local is the memory of an SGE.
func (q *modelQP) local(sge provider.SGE, w right) (spans, bool) {
	if sge.MemoryRegionToken != q.pd.object.(*provider.PD).PrivilegedMemoryRegionToken() {
		return q.access(sge.MemoryRegionToken, sge.VirtualAddress, uint64(sge.Length), w)
	}
	if w == readSink && q.m.info.AdapterFlags&provider.AdapterReadSinkNotRequired == 0 {
		return nil, false
	}
	const inPage = provider.PageSize - 1
	for _, l := range q.of.lams {
		if l.gone {
			continue
		}
		for i, page := range l.pages {
			if at := int(sge.VirtualAddress & inPage); uint64(page) == sge.VirtualAddress&^inPage && at+int(sge.Length) <= provider.PageSize {
				return l.page(i).part(uint64(at), uint64(sge.Length))
			}
		}
	}
	return nil, false
}

// gather is the memory of n bytes of an SGL at an offset, packet for packet, as
// far as it may be used.
func (q *modelQP) gather(sgl []provider.SGE, n int, w right) (all spans, ok bool) {
	for at := 0; at < n; at += modelMTU {
		packet, ok := q.gatherPart(sgl, at, min(modelMTU, n-at), w)
		if !ok {
			return all, false
		}
		all = append(all, packet...)
	}
	return all, true
}

const modelMTU = 4096

func (q *modelQP) gatherPart(sgl []provider.SGE, at, n int, w right) (all spans, ok bool) {
	for _, sge := range sgl {
		skip := min(at, int(sge.Length))
		take := min(n, int(sge.Length)-skip)
		at, n = at-skip, n-take
		if take == 0 {
			continue
		}
		piece, ok := q.local(provider.SGE{
			VirtualAddress: sge.VirtualAddress + uint64(skip), Length: uint32(take), MemoryRegionToken: sge.MemoryRegionToken,
		}, w)
		if !ok {
			return nil, false
		}
		all = append(all, piece...)
	}
	return all, true
}

// lengthOf is the bytes of an SGL.
func lengthOf(sgl []provider.SGE) (n int) {
	for _, sge := range sgl {
		n += int(sge.Length)
	}
	return n
}

// A modelMR describes an MR as the model knows it: a registered one has a region,
// an FRMR a grant once it has been initialised.
type modelMR struct {
	entity
	*provider.MR
	pd       *modelPD
	fast     bool
	region   *modelRegion
	grant    *modelGrant
	maxPages uint32
	remote   bool
	windows  int
}

func (mr *modelMR) init(pd *modelPD, fast bool, object *provider.MR) {
	mr.MR, mr.pd, mr.fast = object, pd, fast
	mr.teardown = func() {
		switch {
		case mr.grant != nil:
			mr.grant.end()
		case mr.windows == 0:
			mr.withdraw()
		}
	}
	mr.leave = mr.withdraw
	pd.m.add(&mr.entity, pd.of, "MR", mr, object, &pd.entity)
	pd.of.mrs = append(pd.of.mrs, mr)
}

// withdraw ends the token of a registered region.
func (mr *modelMR) withdraw() {
	if mr.region != nil {
		delete(mr.of.device.tokens, mr.region.token)
		mr.region = nil
	}
}

// end ends the token of a grant's region, if there is one.
func (g *modelGrant) end() {
	if g.region == nil {
		return
	}
	delete(g.pd.of.device.tokens, g.region.token)
	g.region = nil
	if mr := g.bound; mr != nil {
		g.bound = nil
		mr.windows--
		mr.holds--
		if mr.closing != nil && mr.windows == 0 {
			mr.withdraw()
		}
		mr.leaveIfFree()
	}
}

// begin puts a region in effect under the token that there is now, which must be
// a new one.
func (g *modelGrant) begin(r *modelRegion) {
	m := g.pd.m
	r.token, r.grant, r.pd = g.newest(), g, g.pd
	if r.token == g.token || m.devices[g.pd.of.device.n].tokens[r.token] != nil {
		m.t.Fatalf("token %#x is not new", r.token)
	}
	g.token, g.region = r.token, r
	g.pd.of.device.tokens[r.token] = r
}

// A modelMW describes a window as the model knows it.
type modelMW struct {
	entity
	*provider.MW
	grant *modelGrant
}

func (mw *modelMW) init(pd *modelPD, object *provider.MW) {
	mw.MW = object
	mw.grant = &modelGrant{pd: pd, newest: object.RemoteToken, token: object.RemoteToken()}
	mw.teardown = func() { mw.grant.end() }
	pd.m.add(&mw.entity, pd.of, "MW", mw, object, &pd.entity)
	pd.of.mws = append(pd.of.mws, mw)
}

// A modelLAM describes a LAM as the model knows it.
type modelLAM struct {
	entity
	lam    *provider.LAM
	pages  []provider.LogicalAddress
	fbo    int
	memory spans
}

func (l *modelLAM) init(c *consumer, lam *provider.LAM, fbo uint32, memory spans) {
	l.lam, l.fbo, l.memory = lam, int(fbo), memory
	l.pages = append(l.pages, lam.Pages...)
	c.m.add(&l.entity, c, "LAM", l, nil)
	c.lams = append(c.lams, l)
}

// page is the memory of one of the pages, of which the first and the last may
// have less than all.
func (l *modelLAM) page(i int) spans {
	whole := append(spans{{n: l.fbo}}, l.memory...)
	whole = append(whole, span{n: provider.PageSize})
	var page spans
	skip, take := i*provider.PageSize, provider.PageSize
	for _, p := range whole {
		s := min(skip, p.n)
		t := min(take, p.n-s)
		skip, take = skip-s, take-t
		if t > 0 {
			page = append(page, span{p.in, p.at + s, t})
		}
	}
	return page
}

func (l *modelLAM) release() {
	l.of.ReleaseLAM(l.lam)
	l.closing = l.m.call(&l.entity, "Close")
	l.closing.want = []provider.Status{provider.StatusSuccess}
	l.leaveIfFree()
}

// modelMDL makes a chain of pieces of an arena, virtually contiguous from va on,
// and says where the bytes are.
func (m *model) modelMDL(a *arena, va uint64) (*provider.MDL, spans) {
	var first, last *provider.MDL
	var memory spans
	for range 1 + m.below(3, "more ranges") {
		n := 1 + m.below(6000, "length of a range")
		p := span{a, m.below(arenaSize-n, "place of a range"), n}
		next := &provider.MDL{VirtualAddress: va + uint64(memory.length()), Bytes: a.real[p.at : p.at+n]}
		if first == nil {
			first = next
		} else {
			last.Next = next
		}
		last = next
		memory = append(memory, p)
	}
	return first, memory
}

// actRegister registers memory, or fails to for a reason.
func (m *model) actRegister(mr *modelMR) {
	m.settle()
	va := pick(m, "base", []uint64{0, 0x7000, base + 123, math.MaxUint64 - 1<<20})
	mdl, memory := m.modelMDL(mr.of.arena, va)
	flags := pick(m, "rights", []provider.MRFlags{7, 7, 15, 0, 1, 2, 5, 8, 9, 4, 16})
	n := uint64(memory.length())
	want := provider.StatusSuccess
	if mr.region != nil {
		want = provider.StatusInvalidDeviceState
	}
	switch {
	case mr.fast, flags == 4, flags == 16:
		want = provider.StatusInvalidParameter
	case m.oneIn(10, "not contiguous") && mdl.Next != nil:
		mdl.Next.VirtualAddress++
		want = provider.StatusInvalidParameter
	case m.oneIn(10, "too long"):
		n++
		want = provider.StatusInvalidParameter
	}
	m.request(&mr.entity, "Register", want, func(done provider.RequestCompletion, context any) provider.Status {
		return mr.Register(mdl, n, flags, done, context)
	})
	if want == provider.StatusSuccess {
		mr.region = &modelRegion{token: mr.LocalToken(), pd: mr.pd, base: va, rights: flags, memory: memory}
		if t := mr.RemoteToken(); t != mr.region.token || mr.of.device.tokens[t] != nil {
			m.t.Fatalf("tokens %#x and %#x", mr.region.token, t)
		}
		mr.of.device.tokens[mr.region.token] = mr.region
	}
	m.settle()
}

// actDeregister takes memory back.
func (m *model) actDeregister(mr *modelMR) {
	m.settle()
	if m.blockedOn(mr.region) {
		return
	}
	c := m.call(&mr.entity, "Deregister", provider.StatusSuccess)
	switch {
	case mr.region == nil:
		c.want = []provider.Status{provider.StatusInvalidDeviceState}
	case mr.windows > 0:
		c.want = []provider.Status{provider.StatusDeviceBusy}
	default:
		mr.withdraw()
	}
	m.logf("%s, want %v", c.what, c.want)
	c.returned = mr.Deregister(c.done, &c.async)
	m.settle()
}

// actInitialize makes an FRMR ready.
func (m *model) actInitialize(mr *modelMR) {
	m.initialize(mr, pick(m, "pages", []uint32{16, 2, 3, 0, 1<<20 + 1}), m.coin("remote access"))
}

func (m *model) initialize(mr *modelMR, pages uint32, remote bool) {
	want := provider.StatusSuccess
	switch {
	case !mr.fast, pages == 0:
		want = provider.StatusInvalidParameter
	case pages > 1<<20:
		want = provider.StatusImplementationLimit
	case mr.grant != nil && mr.grant.region != nil:
		want = provider.StatusInvalidDeviceState
	}
	m.request(&mr.entity, "InitializeFastRegister", want, func(done provider.RequestCompletion, context any) provider.Status {
		return mr.InitializeFastRegister(pages, remote, done, context)
	})
	if want == provider.StatusSuccess {
		mr.maxPages, mr.remote = pages, remote
		if mr.grant == nil {
			mr.grant = &modelGrant{pd: mr.pd, newest: mr.RemoteToken, token: mr.RemoteToken()}
		}
	}
	m.settle()
}

// actBuildLAM maps memory.
func (m *model) actBuildLAM(c *consumer) {
	va := uint64(m.below(3*provider.PageSize, "address"))
	mdl, memory := m.modelMDL(c.arena, va)
	lam, size, fbo := &provider.LAM{}, uint32(math.MaxUint32), uint32(0)
	want, n := provider.StatusSuccess, uint64(memory.length())
	switch {
	case m.oneIn(10, "too long"):
		want, n = provider.StatusInvalidParameter, n+1
	case m.oneIn(10, "too small"):
		want, size = provider.StatusBufferTooSmall, 16
	}
	m.request(&c.entity, "BuildLAM", want, func(done provider.RequestCompletion, context any) provider.Status {
		return c.BuildLAM(mdl, n, done, context, lam, &size, &fbo)
	})
	if want == provider.StatusSuccess {
		l := &modelLAM{}
		l.init(c, lam, fbo, memory)
		pages := (int(va%provider.PageSize) + memory.length() + provider.PageSize - 1) / provider.PageSize
		if int(fbo) != int(va%provider.PageSize) || len(l.pages) != pages || size != uint32(16+8*pages) {
			m.t.Fatalf("LAM of %d bytes at %#x: FBO %d, %d pages, size %d", memory.length(), va, fbo, len(l.pages), size)
		}
	}
	m.settle()
}
