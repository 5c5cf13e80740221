package soak

import (
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A grant is the right that a token gives to part of a memory. A registered
// region's lasts as long as the device; those of windows and fast registrations
// come and go with requests.
type grant struct {
	instance *instance
	token    uint32
	va       uint64 // of the byte at from
	from, to int
	flags    provider.MRFlags
	local    bool // can be named in an SGL
	remote   bool // can be named by the peer
	logical  bool // the privileged token: addresses are those of instance.lam's pages
	window   *window
	fleeting bool // the spare region's
	by       *end // on whose queue it was asked for
	begun    bool // has been in effect
	ending   bool // its end has been asked for, by somebody
	ended    bool // and has come
}

// A window can be given one grant after another: it is a memory window, or a region
// for fast registration.
type window struct {
	instance *instance
	mw       *provider.MW // or
	mr       *provider.MR
	current  *grant // nil if there is none
	useless  bool   // nobody knows whether its last grant is in effect
}

// object returns what Invalidate takes.
func (w *window) object() provider.Object {
	if w.mw != nil {
		return w.mw
	}
	return w.mr
}

// newest returns the token of the latest registration.
func (w *window) newest() uint32 {
	if w.mw != nil {
		return w.mw.RemoteToken()
	}
	return w.mr.RemoteToken()
}

// The regions of each memory, in units of plan.unit.
const (
	openUnits    = 8 // peers may do what they like
	readOnly     = 1 // peers may read
	privateUnits = 1 // local access only
	mappedUnits  = 2 // by a LAM, for logical addresses and fast registration
	spareUnits   = 1 // like the first, and deregistered now and then
	outside      = 1 // not registered
	allUnits     = openUnits + readOnly + privateUnits + mappedUnits + spareUnits + outside
)

// base is the address at which memory begins: nobody could dereference it.
const base = 0x70_0000_0000_0000

// createObjects makes on a device what every consumer here uses.
func (l *instance) createObjects() {
	r, u := l.run, l.run.plan.unit
	l.memory = r.NewMemory(l, allUnits*u)
	at := 0
	part := func(units int) (from, to int) {
		from, at = at, at+units*u
		return from, at
	}
	newMR := func() *provider.MR { return keep(l, must(l.domain.CreateMR(false, nil, nil))) }
	const all = provider.MRAllowRemoteRead | provider.MRAllowRemoteWrite | provider.MRReadSink
	l.bindable, l.spare = newMR(), newMR()
	from, to := part(openUnits)
	l.register(l.bindable, from, to, all)
	from, to = part(readOnly)
	l.register(newMR(), from, to, provider.MRAllowRemoteRead)
	from, to = part(privateUnits)
	l.register(newMR(), from, to, provider.MRAllowLocalWrite|provider.MRReadSink)
	from, to = part(spareUnits)
	l.register(l.spare, from, to, all).fleeting = true
	l.registerInOtherDomain()
	from, to = part(mappedUnits)
	l.mappedFrom = from
	size, fbo := uint32(1<<20), uint32(0)
	must(0, l.adapter.BuildLAM(&provider.MDL{VirtualAddress: base + uint64(from), Bytes: l.memory.Bytes[from:to]},
		uint64(to-from), nil, nil, &l.lam, &size, &fbo))
	l.grants = append(l.grants, &grant{
		instance: l, token: l.domain.PrivilegedMemoryRegionToken(), from: from, to: to,
		flags: provider.MRAllowLocalWrite, local: true, logical: true, begun: true,
	})
	for range 2 {
		l.windows = append(l.windows, &window{instance: l, mw: keep(l, must(l.domain.CreateMW(nil, nil)))})
		mr := keep(l, must(l.domain.CreateMR(true, nil, nil)))
		must(mr, mr.InitializeFastRegister(uint32(len(l.lam.Pages)), true, nil, nil))
		l.windows = append(l.windows, &window{instance: l, mr: mr})
	}
	for range 1 + r.Rand.IntN(2) {
		l.queues = append(l.queues, newQueue(l))
	}
	if l.host.plan.srq {
		l.shared = newSharedReceives(l)
	}
	if r.Chance(0.5) {
		l.endpoint = keep(l, must(l.adapter.CreateSharedEndpoint(netip.AddrPortFrom(trial.Pick(r.Rand, l.host.addresses), 0), nil, nil)))
	}
	l.listen()
}

// register registers part of the memory.
func (l *instance) register(mr *provider.MR, from, to int, flags provider.MRFlags) *grant {
	mdl := &provider.MDL{VirtualAddress: base + uint64(from), Bytes: l.memory.Bytes[from:to]}
	must(mr, mr.Register(mdl, uint64(to-from), flags, nil, nil))
	g := &grant{
		instance: l, token: mr.LocalToken(), va: base + uint64(from), from: from, to: to, flags: flags,
		local: true, remote: true, begun: true,
	}
	l.grants = append(l.grants, g)
	return g
}

// reregister takes the spare region away, if nobody uses it, and then registers
// it anew, which gives it another token.
func (l *instance) reregister() {
	r := l.run
	i := slices.IndexFunc(l.grants, func(g *grant) bool { return g.fleeting && !g.ending })
	if i < 0 || l.inUse(l.grants[i]) && !r.mistake() {
		return
	}
	g := l.grants[i]
	g.ending = true
	r.Coverage.Count("region deregistered")
	status := l.spare.Deregister(func(_ any, status provider.Status) {
		if status != provider.StatusSuccess {
			r.Fail("requests end as they should", "%v: Deregister %v", l, status)
		}
		l.memory.Check()
		g.end()
		l.dropEndedGrants()
		if !l.closing && !l.dead {
			l.register(l.spare, g.from, g.to, g.flags).fleeting = true
		}
	}, nil)
	if status != provider.StatusPending {
		r.Fail("requests end as they should", "%v: Deregister %v", l, status)
	}
}

// registerInOtherDomain registers the first part of the memory in another domain, too, whose
// tokens are no good on this one's connections.
func (l *instance) registerInOtherDomain() {
	domain := keep(l, must(l.adapter.CreatePD(nil, nil)))
	mr := keep(l, must(domain.CreateMR(false, nil, nil)))
	to := openUnits * l.run.plan.unit
	mdl := &provider.MDL{VirtualAddress: base, Bytes: l.memory.Bytes[:to]}
	must(mr, mr.Register(mdl, uint64(to), provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite|provider.MRReadSink, nil, nil))
	l.strange = mr.RemoteToken()
}

// An access is a kind of access to memory, for which a grant is needed.
type access int

const (
	localRead access = iota
	localWrite
	readSink
	remoteRead
	remoteWrite
)

// allows reports whether the grant has the right to an access.
func (g *grant) allows(a access) bool {
	free := g.instance.host.plan.info.AdapterFlags&provider.AdapterReadSinkNotRequired != 0
	switch a {
	case localRead:
		return g.local
	case localWrite:
		return g.local && g.flags&provider.MRAllowLocalWrite != 0
	case readSink:
		return g.allows(localWrite) && (free || g.flags&provider.MRReadSink != 0)
	case remoteRead:
		return g.remote && g.flags&provider.MRAllowRemoteRead != 0
	default:
		return g.remote && g.flags&provider.MRAllowRemoteWrite == provider.MRAllowRemoteWrite
	}
}

// known reports whether a request that is posted now on one of the queues of a
// connection's ends finds the grant in effect, unless something goes wrong. The
// peer is told of a grant when it is in effect.
func (g *grant) known(e *end) bool {
	return !g.ending && !g.ended && (g.begun || g.by == e)
}

// address returns the virtual or logical address of a place in the memory.
func (g *grant) address(at int) uint64 {
	offset := at - g.from
	if g.logical {
		page := min(offset/provider.PageSize, len(g.instance.lam.Pages)-1) // nothing may be at its end
		return uint64(g.instance.lam.Pages[page]) + uint64(offset-page*provider.PageSize)
	}
	return g.va + uint64(offset)
}

// grantFor returns a random grant with a right, for use with an end; nil if there is
// none.
func (l *instance) grantFor(e *end, a access) *grant {
	var fit []*grant
	for _, g := range l.grants {
		if g.known(e) && g.allows(a) {
			fit = append(fit, g)
		}
	}
	return trial.Pick(l.run.Rand, fit)
}

// room finds a place for n bytes in the grant's memory that can be claimed.
func (g *grant) room(n int, write bool) (at int, ok bool) {
	limit := g.to - g.from
	if g.logical {
		limit = provider.PageSize
	}
	if n > limit {
		return 0, false
	}
	for range 4 {
		at = g.from + g.instance.run.Rand.IntN(limit-max(n, 1)+1)
		if g.logical {
			at += g.instance.run.Rand.IntN((g.to-g.from)/provider.PageSize) * provider.PageSize
		}
		if n == 0 || g.instance.memory.Free(at, at+n, write) {
			return at, true
		}
	}
	return 0, false
}

// end notes that a grant is over.
func (g *grant) end() {
	g.ending, g.ended = true, true
	if g.window != nil && g.window.current == g {
		g.window.current = nil
	}
}

// markUncertain notes that nobody knows whether the grant is in effect.
func (g *grant) markUncertain() {
	g.ending = true
	if g.window != nil {
		g.window.useless = true
	}
}

// dropEndedGrants drops the grants that are over.
func (l *instance) dropEndedGrants() {
	kept := l.grants[:0]
	for _, g := range l.grants {
		if !g.ended {
			kept = append(kept, g)
		} else if g.remote {
			l.former = append(l.former, g)
		}
	}
	l.grants = kept
	l.former = l.former[max(0, len(l.former)-20):] // tokens come again after 256 times
}
