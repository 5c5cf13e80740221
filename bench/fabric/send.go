package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	programs["send"] = send
}

// probePort is the port that the sender's packets go to.
const probePort = 9000

// send ADDRESS SIZE SEGMENTS COUNT PER_SECOND sends COUNT UDP datagrams of SIZE
// bytes, numbered from 0, as super-packets of SEGMENTS, evenly spaced.
func send(args []string) error {
	addr, err := netip.ParseAddr(args[0])
	if err != nil {
		return err
	}
	var numbers [4]int
	for i := range numbers {
		if numbers[i], err = strconv.Atoi(args[1+i]); err != nil {
			return err
		}
	}
	size, segments, count, perSecond := numbers[0], numbers[1], numbers[2], numbers[3]
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, probePort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		if segments > 1 {
			optErr = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
		}
	}); err != nil {
		return err
	}
	if optErr != nil {
		return fmt.Errorf("UDP_SEGMENT: %w", optErr)
	}
	tick, err := pacer(time.Second * time.Duration(segments) / time.Duration(perSecond))
	if err != nil {
		return err
	}
	b := make([]byte, size*segments)
	for n := 0; n < count; {
		length := 0
		for s := 0; s < segments && n < count; s++ {
			binary.BigEndian.PutUint64(b[s*size:], uint64(n))
			length += size
			n++
		}
		if err := tick(); err != nil {
			return err
		}
		if _, err := conn.Write(b[:length]); err != nil {
			return err
		}
	}
	return nil
}

// pacer returns a function that returns once per gap, and at once for what it is
// behind.
func pacer(gap time.Duration) (func() error, error) {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("timer slack: %w", err)
	}
	next := time.Duration(0)
	var now unix.Timespec
	return func() error {
		if next == 0 {
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				return err
			}
			next = time.Duration(now.Nano())
		}
		at := unix.NsecToTimespec(int64(next))
		next += gap
		for {
			if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil); err != unix.EINTR {
				return err
			}
		}
	}, nil
}
