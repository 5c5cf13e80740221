package verbs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// TestOperations: every operation of a reliable connection, and where its data is.
func TestOperations(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 4 {
		b.receive(qps[1], uint64(100+i), 600_000+i*10_000, 10_000)
	}
	imm, writeImm := a.request(rc.OpSendImmediate, 2, 5000, 5, 0), a.request(rc.OpWriteImmediate, 4, 6000, 3000, 200_000)
	imm.Immediate, writeImm.Immediate = 0xABCD, 0xEF01
	add, swap, swapped := a.request(rc.OpFetchAdd, 6, 800_000, 8, 400_000), a.request(rc.OpCompareSwap, 7, 800_008, 8, 400_000), a.request(rc.OpAtomicWrite, 8, 800_016, 8, 400_008)
	binary.NativeEndian.PutUint64(b.memory[400_000:], 40)
	add.Operand = 2
	swap.Compare, swap.Operand = 42, 43
	binary.NativeEndian.PutUint64(a.memory[800_016:], 44)
	inlined := a.request(rc.OpSend, 9, 0, 0, 0)
	inlined.Inline = []byte("inlined")
	w.post(qps[0], a.request(rc.OpSend, 1, 1000, 4000, 0), imm, a.request(rc.OpWrite, 3, 2000, 5000, 100_000), writeImm,
		a.request(rc.OpRead, 5, 700_000, 5000, 300_000), add, swap, swapped, inlined)
	a.completed("send 1", "send 2", "write 3", "write 4", "read 5", "add 6", "swap 7", "atomic write 8", "send 9")
	b.completed("receive 100 of 4000", "receive 101 of 5 immediate 0xabcd", "receive write 102 of 3000 immediate 0xef01", "receive 103 of 7")
	for _, same := range []struct {
		what      string
		got, want []byte
	}{
		{"send", b.memory[600_000:604_000], a.memory[1000:5000]},
		{"send with immediate", b.memory[610_000:610_005], a.memory[5000:5005]},
		{"write", b.memory[100_000:105_000], a.memory[2000:7000]},
		{"write with immediate", b.memory[200_000:203_000], a.memory[6000:9000]},
		{"read", a.memory[700_000:705_000], b.memory[300_000:305_000]},
		{"inlined", b.memory[630_000:630_007], []byte("inlined")},
		{"added to", a.memory[800_000:800_008], binary.NativeEndian.AppendUint64(nil, 40)},
		{"swapped", a.memory[800_008:800_016], binary.NativeEndian.AppendUint64(nil, 42)},
		{"after both", b.memory[400_000:400_008], binary.NativeEndian.AppendUint64(nil, 43)},
		{"written atomically", b.memory[400_008:400_016], binary.NativeEndian.AppendUint64(nil, 44)},
	} {
		if !bytes.Equal(same.got, same.want) {
			t.Errorf("%s: other bytes", same.what)
		}
	}
	b.happened() // its queue pair was ready to send before anything came
}

// TestAtomicWrite: its 8 bytes are inline or in pieces of memory that may be read.
func TestAtomicWrite(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	inlined, pieces := a.request(rc.OpAtomicWrite, 1, 0, 0, 1000), a.request(rc.OpAtomicWrite, 2, 0, 0, 2000)
	inlined.SGL, inlined.Inline = nil, []byte("inlined!")
	copy(a.memory, "ces!")
	copy(a.memory[100:], "pie")
	pieces.SGL = []rc.SGE{{Address: base + 100, Length: 3, Token: a.mr.Key()}, {Address: base, Length: 4, Token: a.mr.Key()}, {Address: base + 3, Length: 1, Token: a.mr.Key()}}
	w.post(qps[0], inlined, pieces)
	a.completed("atomic write 1", "atomic write 2")
	if got := string(b.memory[1000:1008]); got != "inlined!" {
		t.Errorf("inlined: %q", got)
	}
	if got := string(b.memory[2000:2008]); got != "pieces!!" {
		t.Errorf("pieces: %q", got)
	}
	for what, change := range map[string]func(*rc.Request){
		"7 bytes":      func(r *rc.Request) { r.Inline = r.Inline[1:] },
		"more bytes":   func(r *rc.Request) { r.SGL = []rc.SGE{a.piece(0, 100)} },
		"of no region": func(r *rc.Request) { r.Inline, r.SGL = nil, []rc.SGE{{Address: base, Length: 8}} },
	} {
		r := inlined
		change(&r.Request)
		refused(t, what, postError(qps[0], r), syscall.EINVAL)
	}
	for access, want := range map[verbs.Access]string{
		verbs.AccessRemoteWrite: "atomic write 1", verbs.AccessRemoteAtomic: fmt.Sprint("atomic write 1 status ", verbs.RemoteAccessError),
	} {
		mr, err := b.pd.RegisterMR(verbs.Bytes(b.memory), size, base, verbs.AccessLocalWrite|access)
		check(t, err)
		clear(b.memory[1000:1008])
		r := inlined
		r.Token = mr.Key()
		w.post(w.pair(verbs.RC, nil)[0], r)
		a.completed(want)
		if got := string(b.memory[1000:1008]); (got == "inlined!") != (access == verbs.AccessRemoteWrite) {
			t.Errorf("access %#x: %q", access, got)
		}
	}
}

// TestSilent: requests that are not signalled make a completion only with an error.
func TestSilent(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, func(c *verbs.QPConfig) { c.SignalAll = false })
	a := w.hosts[0]
	signaled := a.request(rc.OpWrite, 2, 0, 10, 0)
	signaled.Signaled = true
	w.post(qps[0], a.request(rc.OpWrite, 1, 0, 10, 0), signaled, a.request(rc.OpWrite, 3, 0, 10, size))
	a.completed("write 2", fmt.Sprint("write 3 status ", verbs.RemoteAccessError))
}

// TestUnreliableConnection: messages arrive whole or not at all, and nobody is told.
func TestUnreliableConnection(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.UC, nil)
	a, b := w.hosts[0], w.hosts[1]
	writeImm := a.request(rc.OpWriteImmediate, 3, 3000, 10, 100_000)
	writeImm.Immediate = 7
	w.post(qps[0], a.request(rc.OpSend, 1, 1000, 3000, 0)) // for which there is no receive
	a.completed("send 1")
	b.receive(qps[1], 100, 600_000, 10_000)
	b.receive(qps[1], 101, 610_000, 10_000)
	w.post(qps[0], a.request(rc.OpSend, 2, 1000, 3000, 0), writeImm)
	a.completed("send 2", "write 3")
	b.completed("receive 100 of 3000", "receive write 101 of 10 immediate 0x7")
	if !bytes.Equal(b.memory[600_000:603_000], a.memory[1000:4000]) || !bytes.Equal(b.memory[100_000:100_010], a.memory[3000:3010]) {
		t.Error("other bytes")
	}
	refused(t, "a read", postError(qps[0], a.request(rc.OpRead, 1, 0, 1, 0)), syscall.EINVAL)
}

func postError(qp *verbs.QP, r verbs.SendRequest) error {
	_, err := qp.Post([]verbs.SendRequest{r})
	return err
}

// TestDatagrams: they go where the address handle says, and begin with the header of their packet.
func TestDatagrams(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.UD, nil)
	a, b := w.hosts[0], w.hosts[1]
	ah, err := a.pd.CreateAH(verbs.Address{Remote: b.address, Port: 1})
	check(t, err)
	b.receive(qps[1], 100, 0, 2000)
	b.receive(qps[1], 101, 2000, 2000)
	r := a.request(rc.OpSend, 1, 1000, 1000, 0)
	r.AH, r.RemoteQPN, r.QKey = ah, qps[1].Number(), qkey
	imm := r
	imm.ID, imm.Op, imm.Immediate = 2, rc.OpSendImmediate, 9
	stranger := r
	stranger.ID, stranger.QKey = 3, qkey+1
	w.post(qps[0], stranger, r, imm)
	a.completed("send 3", "send 1", "send 2")
	b.completed("receive 100 of 1040 grh IPv4", "receive 101 of 1040 immediate 0x9 grh IPv4")
	if !bytes.Equal(b.memory[40:1040], a.memory[1000:2000]) {
		t.Error("other bytes")
	}
	if from, to := b.memory[32:36], b.memory[36:40]; !bytes.Equal(from, a.address.AsSlice()) || !bytes.Equal(to, b.address.AsSlice()) {
		t.Errorf("from %v to %v", from, to)
	}
	long := r
	long.SGL = []rc.SGE{a.piece(0, 4097)}
	refused(t, "longer than the MTU", postError(qps[0], long), syscall.EINVAL)
	long.SGL, long.AH = r.SGL, nil
	refused(t, "without an address", postError(qps[0], long), syscall.EINVAL)
	_, err = a.pd.CreateAH(verbs.Address{Remote: b.address, GIDIndex: 1, Port: 1})
	refused(t, "another GID", err, syscall.EINVAL)
	check(t, ah.Destroy())
}

// TestStates: what each state takes, as ibv_modify_qp(3), ibv_post_send(3) and ibv_post_recv(3) have it.
func TestStates(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		w := newWorld(t, 1)
		a := w.hosts[0]
		qp, peer := a.create(kind, nil), w.hosts[1].create(kind, nil)
		w.hosts[1].toInit(peer)
		w.hosts[1].toReceive(peer, qp)
		sends := func(ok bool) {
			t.Helper()
			r := a.request(rc.OpSend, 1, 0, 1, 0)
			if kind == verbs.UD {
				r.AH = addressOf(a)
			}
			if err := postError(qp, r); (err == nil) != ok {
				t.Errorf("kind %d: a send: %v", kind, err)
			}
		}
		receives := func(ok bool) {
			t.Helper()
			if _, err := qp.Receive([]verbs.ReceiveRequest{{ID: 2}}); (err == nil) != ok {
				t.Errorf("kind %d: a receive: %v", kind, err)
			}
		}
		state := func(want verbs.QPState) {
			t.Helper()
			if got, _ := qp.Query(); got.State != want {
				t.Errorf("kind %d: state %d, want %d", kind, got.State, want)
			}
		}
		wrong := func(a verbs.Attributes, mask verbs.AttributeMask) {
			t.Helper()
			before, _ := qp.Query()
			refused(t, fmt.Sprintf("kind %d: to %d with %#x", kind, a.State, mask), qp.Modify(&a, mask), syscall.EINVAL)
			if after, _ := qp.Query(); after != before {
				t.Errorf("kind %d: a refused change changed %+v to %+v", kind, before, after)
			}
		}
		sends(false)
		receives(false)
		wrong(verbs.Attributes{State: verbs.ReadyToSend}, verbs.MaskState)
		wrong(verbs.Attributes{State: verbs.Init, Port: 1}, verbs.MaskState|verbs.MaskPort)
		wrong(verbs.Attributes{State: verbs.Init, Port: 2}, verbs.MaskState|verbs.MaskPort|verbs.MaskPKeyIndex|verbs.MaskAccess|verbs.MaskQKey)
		a.toInit(qp)
		state(verbs.Init)
		sends(false)
		receives(true)
		a.toReceive(qp, peer)
		state(verbs.ReadyToReceive)
		sends(false)
		receives(true)
		a.toSend(qp)
		state(verbs.ReadyToSend)
		sends(true)
		wrong(verbs.Attributes{CurrentState: verbs.ReadyToReceive}, verbs.MaskCurrentState)
		wrong(verbs.Attributes{DestQPN: 1}, verbs.MaskDestQPN)
		w.modify(qp, verbs.Attributes{State: verbs.SendQueueDrain, DrainNotify: true}, verbs.MaskDrainNotify)
		state(verbs.SendQueueDrain)
		sends(true)
		w.modify(qp, verbs.Attributes{State: verbs.ReadyToSend}, 0)
		w.modify(qp, verbs.Attributes{State: verbs.Error}, 0)
		state(verbs.Error)
		sends(true)
		receives(true)
		w.modify(qp, verbs.Attributes{State: verbs.Reset}, 0)
		state(verbs.Reset)
		sends(false)
		receives(false)
	}
}

// addressOf is a handle for the host's peer.
func addressOf(h *host) *verbs.AH {
	ah, err := h.pd.CreateAH(verbs.Address{Remote: h.peer().address, Port: 1})
	check(h.world.t, err)
	return ah
}

// TestOnlyReceives: a queue pair that was never told to send answers, and hears of the first message.
func TestOnlyReceives(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.hosts[0], w.hosts[1]
	server, client := b.create(verbs.RC, nil), a.create(verbs.RC, nil)
	b.toInit(server)
	a.toInit(client)
	b.toReceive(server, client)
	a.toReceive(client, server)
	a.toSend(client)
	b.receive(server, 100, 0, 100)
	w.post(client, a.request(rc.OpSend, 1, 0, 10, 0), a.request(rc.OpRead, 2, 100, 10, 100), a.request(rc.OpWrite, 3, 100, 10, 100))
	a.completed("send 1", "read 2", "write 3")
	b.completed("receive 100 of 10")
	b.happened("established")
	a.happened()
}

// TestErrors: what each end is told of what goes wrong.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		request        func(a *host) verbs.SendRequest
		access         verbs.Access // of the server's queue pair, if not 0
		receive        int          // bytes
		client, server []string
		events         []string
	}{
		"no such token": {
			request: func(a *host) verbs.SendRequest {
				r := a.request(rc.OpWrite, 1, 0, 10, 0)
				r.Token++
				return r
			},
			client: []string{fmt.Sprint("write 1 status ", verbs.RemoteAccessError)}, events: []string{"access error"},
		},
		"beyond the region": {
			request: func(a *host) verbs.SendRequest { return a.request(rc.OpRead, 1, 0, 10, size-9) },
			client:  []string{fmt.Sprint("read 1 status ", verbs.RemoteAccessError)}, events: []string{"access error"},
		},
		"the queue pair allows no reads": {
			request: func(a *host) verbs.SendRequest { return a.request(rc.OpRead, 1, 0, 10, 0) },
			access:  verbs.AccessRemoteWrite,
			client:  []string{fmt.Sprint("read 1 status ", verbs.RemoteInvalidRequestError)}, events: []string{"request error"},
		},
		"nor atomics": {
			request: func(a *host) verbs.SendRequest { return a.request(rc.OpFetchAdd, 1, 0, 8, 0) },
			access:  verbs.AccessRemoteWrite | verbs.AccessRemoteRead,
			client:  []string{fmt.Sprint("add 1 status ", verbs.RemoteInvalidRequestError)}, events: []string{"request error"},
		},
		"local memory that is not there": {
			request: func(a *host) verbs.SendRequest {
				r := a.request(rc.OpWrite, 1, size-5, 10, 0)
				return r
			},
			client: []string{fmt.Sprint("write 1 status ", verbs.LocalProtectionError)},
		},
		"a message that is too long": {
			request: func(a *host) verbs.SendRequest { return a.request(rc.OpSend, 1, 0, 10, 0) },
			receive: 9,
			client:  []string{fmt.Sprint("send 1 status ", verbs.RemoteInvalidRequestError)},
			server:  []string{fmt.Sprint("receive 100 status ", verbs.LocalLengthError)}, events: []string{"request error"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			qps := w.pair(verbs.RC, nil)
			a, b := w.hosts[0], w.hosts[1]
			if test.access != 0 {
				if err := qps[1].Modify(&verbs.Attributes{Access: test.access}, verbs.MaskAccess); err != nil {
					t.Fatal(err)
				}
			}
			if test.receive > 0 {
				b.receive(qps[1], 100, 0, test.receive)
			}
			w.post(qps[0], test.request(a))
			a.completed(test.client...)
			b.completed(test.server...)
			b.happened(test.events...)
		})
	}
}

// TestNobodyThere: a peer that says nothing is given up when its time is over, and a receiver without a receive when it
// has been asked often enough.
func TestNobodyThere(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	check(t, qps[1].Destroy())
	w.post(qps[0], a.request(rc.OpWrite, 1, 0, 10, 0), a.request(rc.OpWrite, 2, 0, 10, 0))
	w.clock.Run(10 * time.Second)
	a.completed(fmt.Sprint("write 1 status ", verbs.RetryExceededError), fmt.Sprint("write 2 status ", verbs.FlushError))
	b.completed()

	w = newWorld(t, 1)
	a = w.hosts[0]
	client, server := a.create(verbs.RC, nil), w.hosts[1].create(verbs.RC, nil)
	a.toInit(client)
	w.hosts[1].toInit(server)
	a.toReceive(client, server)
	w.hosts[1].toReceive(server, client)
	w.modify(client, verbs.Attributes{State: verbs.ReadyToSend, SendPSN: psnOf(client), Timeout: 14, RetryCount: 7, RNRRetry: 2, MaxReads: 1},
		verbs.MaskSendPSN|verbs.MaskTimeout|verbs.MaskRetryCount|verbs.MaskRNRRetry|verbs.MaskMaxReads)
	w.post(client, a.request(rc.OpSend, 1, 0, 10, 0))
	a.completed(fmt.Sprint("send 1 status ", verbs.RNRRetryExceededError))
}

// TestDrain: in SQD what has begun goes on, what has not waits, and the end of the former is told.
func TestDrain(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	w.post(qps[0], a.request(rc.OpWrite, 1, 0, 100_000, 0))
	w.clock.Run(5 * time.Microsecond)
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain, DrainNotify: true}, verbs.MaskDrainNotify)
	a.happened()
	w.post(qps[0], a.request(rc.OpWrite, 2, 0, 10, 0))
	a.completed("write 1")
	a.happened("drained")
	w.modify(qps[0], verbs.Attributes{State: verbs.ReadyToSend}, 0)
	a.completed("write 2")

	// A program that has the queue pair send again before that is told nothing.
	w.post(qps[0], a.request(rc.OpWrite, 3, 0, 100_000, 0))
	w.clock.Run(5 * time.Microsecond)
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain, DrainNotify: true}, verbs.MaskDrainNotify)
	w.modify(qps[0], verbs.Attributes{State: verbs.ReadyToSend}, 0)
	a.completed("write 3")
	a.happened()
}

// TestAgain: a queue pair that is reset is as new, with what was posted forgotten, and is connected again.
func TestAgain(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC} {
		w := newWorld(t, 1)
		qps := w.pair(kind, nil)
		a, b := w.hosts[0], w.hosts[1]
		b.receive(qps[1], 100, 0, 100)
		w.path.Delay = time.Second
		w.post(qps[0], a.request(rc.OpWrite, 1, 0, 10, 0))
		for i, h := range w.hosts {
			w.modify(qps[i], verbs.Attributes{State: verbs.Reset}, 0)
			h.completed()
		}
		w.path.Delay = 10 * time.Microsecond
		w.clock.Run(3 * time.Second)
		for i, h := range w.hosts {
			h.toInit(qps[i])
			h.toReceive(qps[i], qps[1-i])
		}
		for i, h := range w.hosts {
			h.toSend(qps[i])
		}
		b.receive(qps[1], 200, 0, 100)
		w.post(qps[0], a.request(rc.OpSend, 2, 0, 10, 0))
		a.completed("send 2")
		b.completed("receive 200 of 10")
	}
}

// TestErrorUnderOneRoof: a queue pair in error says nothing, and one of the same device that waits for it gives up as
// soon as for any other.
func TestErrorUnderOneRoof(t *testing.T) {
	w := newWorld(t, 1)
	h := w.hosts[0]
	qps := [2]*verbs.QP{h.create(verbs.RC, nil), h.create(verbs.RC, nil)}
	for i, qp := range qps {
		h.toInit(qp)
		w.modify(qp, verbs.Attributes{
			State: verbs.ReadyToReceive, PathMTU: 1024, DestQPN: qps[1-i].Number(), ReceivePSN: psnOf(qps[1-i]), MaxDestReads: 4, MinRNRTimer: 1,
			Address: verbs.Address{Remote: h.address, Port: 1},
		}, verbs.MaskAddress|verbs.MaskPathMTU|verbs.MaskDestQPN|verbs.MaskReceivePSN|verbs.MaskMaxDestReads|verbs.MaskMinRNRTimer)
		h.toSend(qp)
	}
	r := h.request(rc.OpWrite, 1, 0, 8, 64)
	r.Token = h.mr.Key()
	w.post(qps[0], r)
	h.completed("write 1")
	w.modify(qps[1], verbs.Attributes{State: verbs.Error}, 0)
	w.post(qps[0], r)
	h.completed(fmt.Sprint("write 1 status ", verbs.RetryExceededError))
}

// TestResetForgetsCompletions: what a queue pair had completed is not polled once it is reset; what others had, is.
func TestResetForgetsCompletions(t *testing.T) {
	w := newWorld(t, 1)
	reset, other := w.pair(verbs.RC, nil), w.pair(verbs.RC, nil)
	a := w.hosts[0]
	for i := range uint64(2 * 16) { // more than the CQ's first ring holds
		w.post(other[0], a.request(rc.OpWrite, 2*i, 0, 10, 0))
		w.run()
		w.post(reset[0], a.request(rc.OpWrite, 2*i+1, 0, 10, 0))
		w.run()
		if i == 0 {
			a.completed("write 0", "write 1")
		}
	}
	w.modify(reset[0], verbs.Attributes{State: verbs.Reset}, 0)
	w.post(other[0], a.request(rc.OpWrite, 100, 0, 10, 0))
	var want []string
	for i := 1; i < 2*16; i++ {
		want = append(want, fmt.Sprint("write ", 2*i))
	}
	a.completed(append(want, "write 100")...)
}

// TestResetKeepsCounters: the device has counted what queue pairs have sent, also when they are reset, and when they are gone.
func TestResetKeepsCounters(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	qp := w.pair(verbs.RC, nil)[0]
	w.post(qp, a.request(rc.OpWrite, 1, 0, 100, 0))
	w.run()
	a.wantSent(1)
	for range 2 {
		w.modify(qp, verbs.Attributes{State: verbs.Reset}, 0)
		a.wantSent(1)
	}
	check(t, qp.Destroy())
	a.wantSent(1)
}

// TestResetInLine: a queue pair that is reset while it waits to be allowed to send holds nothing of what is allowed.
func TestResetInLine(t *testing.T) {
	w := newWorld(t, 1)
	w.path.Rate = 100e6
	a := w.hosts[0]
	first, second := w.pair(verbs.RC, nil), w.pair(verbs.RC, nil)
	for _, qps := range [][2]*verbs.QP{first, second} {
		for range 4 {
			w.post(qps[0], a.request(rc.OpWrite, 1, 0, size, 0))
		}
	}
	w.clock.Run(100 * time.Millisecond)
	w.modify(second[0], verbs.Attributes{State: verbs.Reset}, 0)
	a.completed("write 1", "write 1", "write 1", "write 1")
	if u := a.device.Transport().Usage(); u.Credit != u.Unneeded {
		t.Errorf("%d bytes of %d are held", u.Credit-u.Unneeded, u.Credit)
	}
}
