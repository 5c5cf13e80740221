// Package replicate is a log that a primary writes into the memory of replicas by RDMA WRITE. An entry is committed when
// a majority, the primary included, has it. It shows how a service is written so that it can be tested in virtual
// time: by package await, with contexts, and with nothing that knows of labs. Its test cuts links beneath it, with as
// many seeds as one likes.
//
// Start reading at Primary.
package replicate

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// EntrySize is the bytes of an entry: its number plus one, and its value, little-endian. A number of 0 is no entry.
const EntrySize = 16

// entry writes an entry.
func entry(to []byte, number int, value uint64) {
	binary.LittleEndian.PutUint64(to, uint64(number)+1)
	binary.LittleEndian.PutUint64(to[8:], value)
}

// Entries returns the values of the entries with which a log begins.
func Entries(log []byte) (values []uint64) {
	for i := 0; len(log) >= EntrySize && binary.LittleEndian.Uint64(log) == uint64(i)+1; i++ {
		values = append(values, binary.LittleEndian.Uint64(log[8:]))
		log = log[EntrySize:]
	}
	return values
}

// Replica lends log to primaries that connect at an address of the adapter's, until ctx ends, whose cause it returns. A
// newer connection of the primary takes the place of the one before.
func Replica(ctx context.Context, adapter *provider.Adapter, at netip.AddrPort, log []byte) error {
	endpoint, err := await.NewEndpoint(ctx, adapter)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	lent, err := endpoint.Register(log, provider.MRAllowRemoteWrite)
	if err != nil {
		return err
	}
	token, err := endpoint.Register(binary.BigEndian.AppendUint32(nil, lent.RemoteToken()), provider.MRAllowLocalRead)
	if err != nil {
		return err
	}
	listener, err := endpoint.Listen(ctx, at)
	if err != nil {
		return err
	}
	var before *await.Conn
	for {
		conn, err := listener.Accept(ctx)
		if err != nil {
			return err
		}
		if before != nil {
			before.Close()
		}
		before = conn
		if err := conn.Send(ctx, token.SGL(0, 4)); err != nil && ctx.Err() == nil {
			conn.Close() // the primary comes again
		}
	}
}

// A primary appends to the log.
type primary struct {
	log []byte
	// step is closed, and another made, when what follows has changed.
	mu       sync.Mutex // guards what follows
	step     chan struct{}
	appended int
	acked    []int // by replica: the entries that it has
}

// Primary appends values to log, which has room for all, and has replicas have it. committed is called with the number
// of entries that a majority has, each time that it has grown. It returns when all are committed, or the cause of
// ctx's end. from is the adapter's address; patience bounds how long a replica may take before it is connected anew.
func Primary(ctx context.Context, adapter *provider.Adapter, from netip.Addr, replicas []netip.AddrPort, log []byte, values []uint64, patience time.Duration, committed func(int)) error {
	endpoint, err := await.NewEndpoint(ctx, adapter)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	endpoint.Local = from
	memory, err := endpoint.Register(log, provider.MRAllowLocalRead)
	if err != nil {
		return err
	}
	p := &primary{log: log, step: make(chan struct{}), acked: make([]int, len(replicas))}
	ctx, stop := context.WithCancel(ctx)
	var feeders sync.WaitGroup
	defer feeders.Wait()
	defer stop()
	for i, at := range replicas {
		feeders.Go(func() {
			for ctx.Err() == nil {
				// A replica that has failed is tried again: it, or the path to it, may come back.
				_ = p.feed(ctx, endpoint, memory, i, at, patience)
				sleep(ctx, patience/10)
			}
		})
	}
	for number, value := range values {
		entry(log[number*EntrySize:], number, value)
		if err := p.commit(ctx, number+1); err != nil {
			return err
		}
		committed(number + 1)
	}
	return nil
}

// commit announces that there are so many entries, and waits until a majority has them.
func (p *primary) commit(ctx context.Context, entries int) error {
	p.mu.Lock()
	p.appended = entries
	p.changed()
	for {
		have := 1
		for _, acked := range p.acked {
			if acked >= entries {
				have++
			}
		}
		if have > (len(p.acked)+1)/2 {
			p.mu.Unlock()
			return nil
		}
		step := p.step
		p.mu.Unlock()
		select {
		case <-step:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p.mu.Lock()
	}
}

// changed wakes all who wait. mu is held.
func (p *primary) changed() {
	close(p.step)
	p.step = make(chan struct{})
}

// feed connects to a replica and writes there what it has not, until that fails.
func (p *primary) feed(ctx context.Context, endpoint *await.Endpoint, memory *await.Buffer, i int, at netip.AddrPort, patience time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := endpoint.Dial(limited, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	token, err := endpoint.Register(make([]byte, 4), provider.MRAllowLocalWrite)
	if err != nil {
		return err
	}
	defer token.Close()
	if _, err := conn.Receive(limited, token.SGL(0, 4)); err != nil {
		return err
	}
	written := 0 // a replica that was started again has nothing
	for {
		p.mu.Lock()
		if p.acked[i] != written {
			p.acked[i] = written
			p.changed()
		}
		appended, step := p.appended, p.step
		p.mu.Unlock()
		if appended == written {
			select {
			case <-step:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		limited, cancel := context.WithTimeout(ctx, patience)
		first, size := written*EntrySize, (appended-written)*EntrySize
		err := conn.Write(limited, memory.SGL(first, size), uint64(first), binary.BigEndian.Uint32(token.Bytes))
		cancel()
		if err != nil {
			return fmt.Errorf("entries %d to %d: %w", written, appended, err)
		}
		written = appended
	}
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
