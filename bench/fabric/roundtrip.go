package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	programs["echo"] = echo
	programs["ping"] = ping
}

// Modes in which an end waits for a datagram.
const (
	polling  = "polling"  // it asks again and again
	blocking = "blocking" // the kernel wakes it
)

// Parameters of the measurement of a round trip.
const (
	echoPort   = 9001
	pingSize   = 64 // bytes; one byte alone ends the echo
	pingTime   = time.Second
	pingWarmUp = 2000 // round trips that do not count
)

// openUDP opens a socket on this end. Its reads give up after some seconds.
func openUDP(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Port: port})
}

// receive waits for a datagram in one of the ways.
func receive(fd int, how string, b []byte) (n int, from unix.Sockaddr, err error) {
	flags := 0
	if how == polling {
		flags = unix.MSG_DONTWAIT
	}
	for begin := time.Now(); ; {
		n, from, err = unix.Recvfrom(fd, b, flags)
		if err == unix.EINTR || err == unix.EAGAIN && flags != 0 && time.Since(begin) < 5*time.Second {
			continue
		}
		return n, from, err
	}
}

// echo HOW returns every datagram, until one of a single byte.
func echo(args []string) error {
	runtime.LockOSThread()
	fd, err := openUDP(echoPort)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	b := make([]byte, 2*pingSize)
	for {
		n, from, err := receive(fd, args[0], b)
		if err != nil {
			return err
		}
		if n == 1 {
			return nil
		}
		if err := unix.Sendto(fd, b[:n], 0, from); err != nil {
			return err
		}
	}
}

// ping HOW ADDRESS sends one datagram after the other, and prints the median round
// trip in ns.
func ping(args []string) error {
	runtime.LockOSThread()
	fd, err := openUDP(0)
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(args[1])
	if err != nil {
		return err
	}
	to := &unix.SockaddrInet4{Port: echoPort, Addr: addr.As4()}
	b := make([]byte, pingSize)
	var took []time.Duration
	for begin := time.Now(); len(took) < 2*pingWarmUp || time.Since(begin) < pingTime; {
		sent := time.Now()
		if err := unix.Sendto(fd, b, 0, to); err != nil {
			return err
		}
		if _, _, err := receive(fd, args[0], b); err != nil {
			return fmt.Errorf("round trip %d: %w", len(took), err)
		}
		took = append(took, time.Since(sent))
	}
	if err := unix.Sendto(fd, b[:1], 0, to); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(median(took[pingWarmUp:]))
}

// roundTrip returns the median round trip between the ends of a rig.
func (r *rig) roundTrip(ctx context.Context, how string) (time.Duration, error) {
	there, err := r.b.start(ctx, "echo", how)
	if err != nil {
		return 0, err
	}
	if err := there.ready(); err != nil {
		return 0, err
	}
	here, err := r.a.start(ctx, "ping", how, addresses[1])
	if err != nil {
		return 0, err
	}
	var took time.Duration
	if err := here.result(&took); err != nil {
		there.stop()
		return 0, err
	}
	return took, there.wait()
}
