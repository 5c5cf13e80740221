package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The floor shows what this kernel carries between two processes that do no more than a
// RoCE adapter must: datagrams of 4 KiB and the headers, as super-packets of as many as
// one message can have, and optionally a CRC32 of each at both ends and a copy into
// memory at the receiver. There is nothing of the provider in it.

const (
	// datagram is the payload and the headers of a RoCE packet, bytes: BTH and ICRC.
	datagram = frameSize + 16
	// perSuper is the number of datagrams in a super-packet: UDP carries up to 65507 bytes.
	perSuper = 15
	// maxWindow keeps what is on the way within the receiver's buffer, which the kernel
	// charges nearly double.
	maxWindow = datagramBuffer / (2 * perSuper * datagram)
	// floorPort is that of both ends.
	floorPort = 4791
)

// A floorConfig says what an end of the floor does.
type floorConfig struct {
	role           string
	local, peer    netip.AddrPort
	crc, copy      bool
	size           int // of the memory that is sent from and copied to, bytes
	batch, window  int // super-packets: per system call, and on the way
	busy           bool
	warmUp, length time.Duration
}

func parseFloor(name string, args []string) (*floorConfig, error) {
	c := &floorConfig{}
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	choice(f, &c.role, "role", []string{"server", "client"}, "which end")
	address := func(p *netip.AddrPort) func(string) error {
		return func(text string) error {
			a, err := netip.ParseAddr(text)
			*p = netip.AddrPortFrom(a, floorPort)
			return err
		}
	}
	f.Func("local", "address of this end", address(&c.local))
	f.Func("peer", "address of the other end", address(&c.peer))
	f.BoolVar(&c.crc, "crc", false, "a CRC32 of each datagram at both ends")
	f.BoolVar(&c.copy, "copy", false, "copy each datagram's payload at the receiver")
	c.size = 64 << 10
	f.Func("size", "bytes of the memory that is sent from and copied to, such as that of a message (default 64KiB)", func(text string) (err error) {
		c.size, err = parseSize(text)
		return err
	})
	f.IntVar(&c.batch, "batch", 2, "super-packets per system call")
	f.IntVar(&c.window, "window", 16, "super-packets on the way")
	f.BoolVar(&c.busy, "busy", false, "never sleep")
	f.DurationVar(&c.warmUp, "warmup", 300*time.Millisecond, "time before the measurement")
	f.DurationVar(&c.length, "duration", time.Second, "time of the measurement")
	if err := parseFlags(f, args); err != nil {
		return nil, err
	}
	switch {
	case !c.local.IsValid() || !c.peer.IsValid():
		return nil, fmt.Errorf("%w: -local and -peer are missing", errUsage)
	case c.batch < 1 || c.window < c.batch || c.window > maxWindow:
		return nil, fmt.Errorf("%w: -batch must be at least 1 and -window from that to %d", errUsage, maxWindow)
	case c.length <= 0 || c.length > time.Minute || c.warmUp < 0 || c.warmUp > time.Minute:
		return nil, fmt.Errorf("%w: -duration and -warmup must be up to 1m", errUsage)
	}
	return c, nil
}

// runFloor runs an end of the floor.
func runFloor(_ context.Context, args []string) error {
	c, err := parseFloor("floor", args)
	if err != nil {
		return err
	}
	fd, err := openDatagrams(c.local, c.peer)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if c.role == "server" {
		fmt.Println("ready")
		return c.sink(fd)
	}
	gbps, err := c.source(fd)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Throughput{Gbps: gbps})
}

// source sends for as long as it is to, and says how many bits of payload were
// acknowledged per second. The end is a datagram of one byte.
func (c *floorConfig) source(fd int) (float64, error) {
	// As many super-packets as the memory has take turns.
	turns := max(1, c.size/(perSuper*frameSize*c.batch))
	batches := make([]*batch, turns)
	for i := range batches {
		batches[i] = newBatch(c.batch, perSuper*datagram)
		batches[i].segment(datagram)
	}
	ack := make([]byte, 8)
	var sent, acked, before uint64
	begin := time.Now()
	for turn, measured := 0, false; ; turn++ {
		b := batches[turn%turns]
		now := time.Now()
		if !measured && now.Sub(begin) >= c.warmUp {
			measured, begin, before = true, now, acked
		}
		if measured && now.Sub(begin) >= c.length && acked > before { // 0 is no figure
			break
		}
		if c.crc {
			for _, super := range b.buffers {
				for at := 0; at < len(super); at += datagram {
					d := super[at : at+datagram]
					binary.LittleEndian.PutUint32(d[datagram-4:], crc32.ChecksumIEEE(d[:datagram-4]))
				}
			}
		}
		if err := b.send(fd, c.batch); err != nil {
			return 0, err
		}
		for sent += uint64(c.batch); ; {
			// All that have come, and as long as the window is full, one more.
			n, err := tryOne(fd, ack)
			if err == nil && n == 0 {
				if sent-acked <= uint64(c.window-c.batch) {
					break
				}
				n, err = receiveOne(fd, ack, c.busy)
			}
			if err != nil {
				return 0, err
			}
			if n == len(ack) {
				acked = binary.LittleEndian.Uint64(ack)
			}
		}
	}
	bits := float64(acked-before) * perSuper * frameSize * 8
	gbps := bits / time.Since(begin).Seconds() / 1e9
	return gbps, sendOne(fd, ack[:1])
}

// sink takes what comes, and acknowledges how much that was so far.
func (c *floorConfig) sink(fd int) error {
	b := newBatch(8, 1<<16)
	memory := make([]byte, max(c.size, perSuper*frameSize))
	place := 0
	ack := make([]byte, 8)
	var got, told uint64
	for {
		n, err := b.receive(fd, c.busy)
		if errors.Is(err, unix.ECONNREFUSED) {
			continue // the source is gone; what it has sent last, the end too, is still there
		}
		if err != nil {
			return err
		}
		for i := range n {
			super := b.message(i)
			if len(super) == 1 {
				return nil
			}
			got += uint64(len(super) / datagram)
			if !c.crc && !c.copy {
				continue
			}
			for at := 0; at+datagram <= len(super); at += datagram {
				d := super[at : at+datagram]
				if c.crc && crc32.ChecksumIEEE(d[:datagram-4]) != binary.LittleEndian.Uint32(d[datagram-4:]) {
					return errors.New("a datagram arrived damaged")
				}
				if c.copy {
					if place+frameSize > len(memory) {
						place = 0
					}
					place += copy(memory[place:place+frameSize], d[12:])
				}
			}
		}
		if supers := got / perSuper; supers-told >= uint64(c.batch) {
			told = supers
			binary.LittleEndian.PutUint64(ack, supers)
			if err := sendOne(fd, ack); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
		}
	}
}
