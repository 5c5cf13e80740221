package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// pingPongLen is the length of a SEND of 8 bytes in its UDP datagram: BTH, payload, ICRC.
const pingPongLen = 12 + 8 + 4

// runUDP runs an end of a ping-pong of single datagrams: the least that two processes do
// to answer each other. The end is a datagram of one byte.
func runUDP(_ context.Context, args []string) error {
	c, err := parseFloor("udp", args)
	if err != nil {
		return err
	}
	fd, err := openDatagrams(c.local, c.peer)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	ball := make([]byte, pingPongLen)
	if c.role == "server" {
		fmt.Println("ready")
		for {
			n, err := receiveOne(fd, ball, c.busy)
			if err != nil || n == 1 {
				return err
			}
			if err := sendOne(fd, ball); err != nil {
				return err
			}
		}
	}
	trips := newTrips()
	var before *usage
	sent := time.Now()
	for begin := sent; ; {
		if err := sendOne(fd, ball); err != nil {
			return err
		}
		if n, err := receiveOne(fd, ball, c.busy); err != nil || n != len(ball) {
			return errors.Join(err, fmt.Errorf("%d bytes came back", n))
		}
		now := time.Now()
		if before != nil {
			if err := trips.RecordValue(min(int64(now.Sub(sent)), longestTrip)); err != nil {
				return err
			}
			if now.Sub(begin) >= c.length {
				break
			}
		} else if now.Sub(begin) >= c.warmUp {
			before = used()
			now = time.Now()
			begin = now
		}
		sent = now
	}
	latency := latencyOf(trips, used().since(before))
	if err := sendOne(fd, ball[:1]); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(latency)
}
