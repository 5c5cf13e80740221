package provider_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/provider"
)

// A mailbox is a CQ that one goroutine waits on.
type mailbox struct {
	cq    *provider.CQ
	ready chan struct{}
}

func (c *crowd) newMailbox() *mailbox {
	b := &mailbox{ready: make(chan struct{}, 1)}
	b.cq = must(c.CreateCQ(64, func(any, provider.Status) {
		select {
		case b.ready <- struct{}{}:
		default:
		}
	}, nil, nil, nil, nil))
	return b
}

// next waits for a completion.
func (b *mailbox) next() provider.ResultEx {
	var results [1]provider.ResultEx
	for b.cq.ResultsEx(results[:]) == 0 {
		b.cq.Arm(provider.NotifyAny)
		if b.cq.ResultsEx(results[:]) == 1 {
			break
		}
		<-b.ready
	}
	return results[0]
}

// A correspondent is an encounter with a CQ of its own.
type correspondent struct {
	*encounter
	mail *mailbox
}

func (c *crowd) newCorrespondent() *correspondent {
	mail := c.newMailbox()
	qp := must(c.pd.CreateQP(mail.cq, mail.cq, nil, 16, 16, 1, 1, 4, nil, nil))
	return &correspondent{&encounter{crowd: c, qp: qp}, mail}
}

// part closes both ends of a connection.
func part(l *provider.Listener, ends ...*correspondent) {
	for _, e := range ends {
		awaitClose(e.conn)
	}
	awaitClose(l)
	for _, e := range ends {
		awaitClose(e.qp)
		awaitClose(e.mail.cq)
	}
}

func (e *correspondent) want(s, want provider.Status) {
	if s != want {
		e.t.Errorf("got %v, want %v", s, want)
	}
}

// TestGrantsConcurrently has several connections lend memory and take it back at
// once, while on connections of their own intruders write to it whenever their
// packets happen to arrive. Memory that has been taken back is the owner's alone:
// the race detector sees whoever still writes to it (NDK-INV-01, 04).
func TestGrantsConcurrently(t *testing.T) {
	defer leak.Check(t)()
	const pairs, rounds, size = 4, 12, 60_000
	w := newWire(71)
	client := newCrowd(t, w, addresses[0], 1, 64)
	server := newCrowd(t, w, addresses[1], 2, 64)
	t.Run("NDK-INV-01 NDK-INV-04 NDK-CB-05 lend and take back", func(t *testing.T) {
		var lending sync.WaitGroup
		for i := range pairs {
			lending.Go(func() { lendInTurns(client, server, uint16(firstPort+2*i), rounds, size, i%2 == 0) })
		}
		lending.Wait()
	})
	for _, c := range []*crowd{client, server} {
		for _, o := range []closer{c.cq, c.mr, c.pd} {
			awaitClose(o)
		}
		c.Close()
		c.device.Close()
	}
}

// lendInTurns lends memory again and again, by fast registration or by a window.
func lendInTurns(client, server *crowd, port uint16, rounds, size int, window bool) {
	memory := make([]byte, size)
	owner, peer := client.newCorrespondent(), server.newCorrespondent()
	l := join([2]*encounter{owner.encounter, peer.encounter}, port)

	// Either an FRMR or a window to an MR.
	mr, mw := must(client.pd.CreateMR(!window, nil, nil)), must(client.pd.CreateMW(nil, nil))
	lam, lamSize, fbo := provider.LAM{}, uint32(1<<20), uint32(0)
	mdl := &provider.MDL{Bytes: memory}
	owner.want(client.BuildLAM(mdl, uint64(size), nil, nil, &lam, &lamSize, &fbo), success)
	var lent provider.Object = mr
	if window {
		lent = mw
		owner.want(mr.Register(mdl, uint64(size), 0xF, nil, nil), success)
	} else {
		owner.want(mr.InitializeFastRegister(16, true, nil, nil), success)
	}
	place := uint64(port) * 4 // where the peer is told
	source := []provider.SGE{{VirtualAddress: base + 1<<19, Length: uint32(size), MemoryRegionToken: server.mr.LocalToken()}}

	for round := range rounds {
		// The owner lends the memory and tells its peer.
		const silently = provider.OpDefer | provider.OpSilentSuccess
		var token uint32
		if window {
			owner.want(owner.qp.Bind(nil, mr, mw, 0, uint64(size), allRights|silently), success)
			token = mw.RemoteToken()
		} else {
			owner.want(owner.qp.FastRegister(nil, mr, lam.Pages, 0, uint64(size), 0, allRights|silently), success)
			token = mr.RemoteToken()
		}
		owner.want(owner.qp.Receive(nil, nil), success)
		owner.want(peer.qp.Receive(nil, []provider.SGE{{VirtualAddress: base + place, Length: 4, MemoryRegionToken: server.mr.LocalToken()}}), success)
		owner.want(owner.qp.Send(nil, []provider.SGE{{Length: 4, Inline: binary.BigEndian.AppendUint32(nil, token)}},
			provider.OpInline|provider.OpSilentSuccess), success)

		// An intruder learns of it, too.
		victim, intruder := client.newCorrespondent(), server.newCorrespondent()
		other := join([2]*encounter{victim.encounter, intruder.encounter}, port+1)
		owner.want(peer.mail.next().Status, success)
		owner.want(intruder.qp.Write(nil, source, 0, token, 0), success)

		// The memory is taken back, by the peer or by the owner.
		if round%2 == 0 {
			owner.want(peer.qp.SendAndInvalidate(nil, nil, provider.OpSilentSuccess, token), success)
			if r := owner.mail.next(); r.Status != success || r.TypeSpecificCompletionOutput != uint64(token) {
				owner.t.Errorf("got %+v", r)
			}
		} else {
			owner.want(peer.qp.Send(nil, nil, provider.OpSilentSuccess), success)
			owner.want(owner.mail.next().Status, success)
			owner.want(owner.qp.Invalidate(nil, lent, 0), success)
			owner.want(owner.mail.next().Status, success)
		}
		for i := range memory {
			memory[i]++ // nobody else's any more
		}
		switch s := intruder.mail.next().Status; s {
		case success, provider.StatusRemoteResources:
		case provider.StatusCancelled: // the refusal was lost, and the connection has ended
		default:
			owner.t.Errorf("the intruder got %v", s)
		}
		part(other, victim, intruder)
	}

	part(l, owner, peer)
	awaitClose(mw)
	awaitClose(mr)
	client.ReleaseLAM(&lam)
}
