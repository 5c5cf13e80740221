package provider_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// TestOneCQ has many goroutines complete requests on one CQ, whose depth and
// moderation others change all the time. It is told, and drained, by callback
// alone.
func TestOneCQ(t *testing.T) {
	t.Run("NDK-CQ-09 NDK-CQ-35 NDK-CQ-37 NDK-CQ-38 NDK-MOD-09 NDK-CB-05", testOneCQ)
}

func testOneCQ(t *testing.T) {
	defer leak.Check(t)()
	const (
		qps      = 8
		window   = 64 // outstanding requests of each
		requests = 2000
	)
	c := newCrowd(t, newWire(0), addresses[0], 1, 1)
	type entry struct{ qp, number int }
	var (
		cq       *provider.CQ
		inside   atomic.Int32
		plain    = make([]provider.Result, 7)
		ex       = make([]provider.ResultEx, 5)
		slots    [qps]chan struct{}
		next     [qps]int // of each QP, the entry to come; the callback's alone
		complete sync.WaitGroup
	)
	for i := range slots {
		slots[i] = make(chan struct{}, window)
	}
	take := func(r *provider.Result) {
		e := r.RequestContext.(entry)
		if e.number != next[e.qp] || r.QPContext != e.qp {
			t.Errorf("entry %+v of QP %v, want number %d", e, r.QPContext, next[e.qp])
		}
		next[e.qp]++
		<-slots[e.qp]
		complete.Done()
	}
	cq = must(c.CreateCQ(qps*window, func(any, provider.Status) {
		if inside.Add(1) > 1 {
			t.Error("two callbacks of one CQ at once")
		}
		cq.Arm(provider.NotifyAny) // the occasion for another callback while this one goes on
		for more := true; more; {
			n, m := cq.Results(plain), cq.ResultsEx(ex)
			for i := range plain[:n] {
				take(&plain[i])
			}
			for i := range ex[:m] {
				take(&ex[i].Result)
			}
			runtime.Gosched()
			more = n+m > 0
		}
		inside.Add(-1)
	}, nil, nil, nil, nil))
	cq.Arm(provider.NotifyAny)

	complete.Add(qps * requests)
	var posting, changing sync.WaitGroup
	for i := range qps {
		qp := must(c.pd.CreateQP(cq, cq, i, window, 1, 1, 1, 0, nil, nil))
		posting.Go(func() {
			for n := range requests {
				slots[i] <- struct{}{}
				if s := qp.Receive(entry{i, n}, nil); s != success {
					t.Errorf("receive: %v", s)
				}
				if n%3 == 0 || n == requests-1 || len(slots[i]) == window {
					qp.Flush()
				}
			}
			awaitClose(qp)
		})
	}
	over := make(chan struct{})
	change := func(f func(r *rand.Rand) provider.Status) {
		changing.Go(func() {
			r := rand.New(rand.NewPCG(1, 1))
			for {
				select {
				case <-over:
					return
				default:
					if s := f(r); s != success {
						t.Errorf("changing the CQ: %v", s)
					}
					runtime.Gosched()
				}
			}
		})
	}
	change(func(r *rand.Rand) provider.Status { return cq.Resize(qps*window+r.Uint32N(100), nil, nil) })
	change(func(r *rand.Rand) provider.Status {
		return cq.ControlInterruptModeration(r.Uint32N(100), r.Uint32N(2*qps*window))
	})
	posting.Wait()
	complete.Wait()
	close(over)
	changing.Wait()
	for i, n := range next {
		if n != requests {
			t.Errorf("%d entries of QP %d, want %d", n, i, requests)
		}
	}
	awaitClose(cq)
	c.end()
}

// TestBothQueues has every QP of both ends send and receive at once, on one end
// from an SRQ. Each message says which it is, and is checked when it is received.
func TestBothQueues(t *testing.T) {
	t.Run("NDK-POST-09 NDK-SRQ-02 NDK-SRQ-07 NDK-CB-05", testBothQueues)
}

func testBothQueues(t *testing.T) {
	defer leak.Check(t)()
	const (
		pairs    = 4
		messages = 300
		window   = 32  // receives of an end
		room     = 256 // bytes for one
	)
	w := newWire(0)
	var crowds [2]*crowd
	for i := range crowds {
		crowds[i] = newCrowd(t, w, addresses[i], uint64(i), 1)
	}
	// One end of all connections.
	type party struct {
		*crowd
		cq       *provider.CQ
		memory   []byte // window x room received, then for each QP window x room to be sent
		mr       *provider.MR
		qps      [pairs]*provider.QP
		got      [pairs]int // received; the callback's alone
		sent     [pairs]chan int
		received chan int // buffers to post again
		over     sync.WaitGroup
	}
	message := func(buffer []byte, from *party, qp, n int) []byte {
		m := buffer[:8+(n*7+qp)%(room-8)]
		binary.BigEndian.PutUint32(m, uint32(n))
		for i := range m[8:] {
			m[8+i] = byte(n + i + qp)
		}
		m[4] = byte(qp)
		return m
	}
	var parties [2]*party
	var srq *provider.SRQ
	var told atomic.Int32
	low := make(chan struct{}) // closed when the SRQ has been low
	var ending atomic.Bool
	for i, c := range crowds {
		p := &party{crowd: c, memory: make([]byte, (1+pairs)*window*room), received: make(chan int, 2*pairs*window)}
		parties[i] = p
		expected := make([]byte, room)
		results := make([]provider.ResultEx, 16)
		p.cq = must(c.CreateCQ(4*pairs*window, func(any, provider.Status) {
			p.cq.Arm(provider.NotifyAny)
			for n := p.cq.ResultsEx(results); n > 0; n = p.cq.ResultsEx(results) {
				for _, r := range results[:n] {
					if r.Status == provider.StatusCancelled && ending.Load() {
						continue
					}
					qp, at := r.QPContext.(int), r.RequestContext.(int)
					if r.Status != success {
						t.Errorf("completed with %v", r.Status)
					}
					if r.Type == provider.OperationTypeSend {
						p.sent[qp] <- at
						continue
					}
					want := message(expected, p, qp, p.got[qp])
					if got := p.memory[at*room:][:r.BytesTransferred]; !bytes.Equal(got, want) {
						t.Errorf("QP %d received %x..., want %x...", qp, got[:min(8, len(got))], want[:8])
					}
					p.got[qp]++
					p.received <- at
					p.over.Done()
				}
			}
		}, nil, nil, nil, nil))
		p.mr = must(c.pd.CreateMR(false, nil, nil))
		if s := p.mr.Register(&provider.MDL{VirtualAddress: base, Bytes: p.memory}, uint64(len(p.memory)),
			provider.MRAllowLocalWrite, nil, nil); s != success {
			t.Fatal(s)
		}
		p.cq.Arm(provider.NotifyAny)
		p.over.Add(pairs * messages)
	}
	client, server := parties[0], parties[1]
	srq = must(server.pd.CreateSRQ(window, 1, window/2, func(_ any, s provider.Status) {
		if told.Add(1) == 1 {
			close(low)
		}
		if s != success {
			t.Errorf("the SRQ's notification: %v", s)
		}
	}, nil, nil, nil, nil))

	var joined [2][pairs]*encounter
	var listeners [pairs]*provider.Listener
	for i := range pairs {
		client.qps[i] = must(client.pd.CreateQP(client.cq, client.cq, i, window/pairs, window, 1, 1, 0, nil, nil))
		server.qps[i] = must(server.pd.CreateQPWithSRQ(server.cq, server.cq, srq, i, window, 1, 0, nil, nil))
		ends := [2]*encounter{{crowd: client.crowd, qp: client.qps[i]}, {crowd: server.crowd, qp: server.qps[i]}}
		listeners[i] = join(ends, uint16(firstPort+i))
		joined[0][i], joined[1][i] = ends[0], ends[1]
	}

	var posting sync.WaitGroup
	stop := make(chan struct{})
	for _, p := range parties {
		receive := func(buffer int) provider.Status {
			sgl := []provider.SGE{{VirtualAddress: base + uint64(buffer*room), Length: room, MemoryRegionToken: p.mr.LocalToken()}}
			if p == server {
				return srq.Receive(buffer, sgl)
			}
			return p.qps[buffer%pairs].Receive(buffer, sgl)
		}
		for buffer := range window {
			p.received <- buffer
		}
		posting.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case buffer := <-p.received:
					if p == server && n == window {
						late := make(chan struct{})
						watchdog := clock.Real().AfterFunc(30*time.Second, func() { close(late) })
						select {
						case <-low: // sooner or later, since nothing more is posted
						case <-late:
							t.Error("the SRQ is low, and does not say so")
						}
						watchdog.Stop()
					}
					if s := receive(buffer); s != success {
						t.Errorf("receive: %v", s)
					}
				}
			}
		})
		for qp := range pairs {
			p.sent[qp] = make(chan int, window)
			for place := range window {
				p.sent[qp] <- place
			}
			posting.Go(func() {
				for n := range messages {
					place := <-p.sent[qp]
					offset := (window*(1+qp) + place) * room
					m := message(p.memory[offset:][:room], p, qp, n)
					sgl := []provider.SGE{{VirtualAddress: base + uint64(offset), Length: uint32(len(m)), MemoryRegionToken: p.mr.LocalToken()}}
					if s := p.qps[qp].Send(place, sgl, 0); s != success {
						t.Errorf("send: %v", s)
					}
				}
			})
		}
	}
	modified := int32(1) // times that the threshold was armed
	posting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if s := srq.Modify(window+uint32(modified%5), uint32(modified%3)*window/2, nil, nil); s != success {
					t.Errorf("modify: %v", s)
				}
				modified++
				runtime.Gosched()
			}
		}
	})
	client.over.Wait()
	server.over.Wait()
	ending.Store(true)
	close(stop)
	posting.Wait()
	for i := range pairs {
		for _, ends := range joined {
			awaitClose(ends[i].conn)
			awaitClose(ends[i].qp)
		}
		awaitClose(listeners[i])
	}
	awaitClose(srq) // after its callbacks
	if n := told.Load(); n == 0 || n > modified {
		t.Errorf("%d notifications after %d arms", n, modified)
	}
	for _, p := range parties {
		awaitClose(p.mr)
		awaitClose(p.cq)
		p.end()
	}
}
