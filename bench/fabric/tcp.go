package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	programs["tcp-sink"] = tcpSink
	programs["tcp-send"] = tcpSend
}

// iperfPort is iperf3's.
const iperfPort = 5201

// congestion is the senders' congestion control. Its slow start ends by a loss or by the
// receiver's window, so that megabytes are in flight and a rate stays busy while an end
// gets no processor. That of cubic ends when delay grows (RFC 9406), with some 50 KB in
// flight. It is built into every Linux kernel.
const congestion = "reno"

// sendTCP sends from one place to another for some time, and says how many bits of
// payload arrived per second.
func sendTCP(ctx context.Context, from, to place, length time.Duration) (float64, error) {
	if tcpTool() == "iperf3" {
		return sendIperf(ctx, from, to, length)
	}
	sink, err := to.start(ctx, "tcp-sink")
	if err != nil {
		return 0, err
	}
	if err := sink.ready(); err != nil {
		return 0, err
	}
	sender, err := from.start(ctx, "tcp-send", addresses[1], length)
	if err != nil {
		return 0, err
	}
	if err := sender.wait(); err != nil {
		return 0, err
	}
	var rate float64
	return rate, sink.result(&rate)
}

func sendIperf(ctx context.Context, from, to place, length time.Duration) (float64, error) {
	server, err := to.command(ctx, []string{"iperf3", "--server", "--one-off", "--forceflush"})
	if err != nil {
		return 0, err
	}
	if err := server.ready(); err != nil {
		return 0, err
	}
	// It says a line before it listens.
	if err := pause(ctx, 200*time.Millisecond); err != nil {
		return 0, err
	}
	client, err := from.command(ctx, []string{"iperf3", "--client", addresses[1].String(), "--json", "--congestion", congestion,
		"--time", fmt.Sprint(int((length + time.Second - 1) / time.Second))})
	if err != nil {
		return 0, err
	}
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
		Error string `json:"error"`
	}
	err = client.result(&report)
	if report.Error != "" {
		err = errors.Join(err, errors.New(report.Error))
	}
	server.stop()
	return report.End.Received.Rate, err
}

// tcpSink takes one connection and prints how many bits per second it had.
func tcpSink([]string) error {
	listener, err := net.Listen("tcp", fmt.Sprint(":", iperfPort))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	begin := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 1<<20))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(float64(n) * 8 / time.Since(begin).Seconds())
}

// tcpSend ADDRESS TIME sends as much as goes.
func tcpSend(args []string) error {
	length, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
		})
		return errors.Join(err, set)
	}}
	conn, err := dialer.Dial("tcp", net.JoinHostPort(args[0], fmt.Sprint(iperfPort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	b := make([]byte, 1<<18)
	for end := time.Now().Add(length); time.Now().Before(end); {
		if _, err := conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}
