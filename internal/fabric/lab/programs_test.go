package lab

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// programs are the programs that tests run in nodes, or as a command of the host.
var programs = map[string]func(args []string) error{
	"send":    send,
	"receive": receive,
	"echo":    echo,
	"ping":    ping,
	"block":   block,
	"up":      up,
	"intrude": intrude,
	"squat":   squat,
	"limited": limited,
	"fill":    fill,
	"pause":   pause,
}

// fill starts processes until there may be no more, says "full", and waits for the end of
// its input.
func fill([]string) error {
	for {
		if err := exec.Command("sleep", "1000").Start(); err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				return err
			}
			break
		}
	}
	fmt.Println("full")
	_, err := os.Stdin.Read(make([]byte, 1))
	if err == io.EOF {
		return nil
	}
	return err
}

// send ADDRESS COUNT SEGMENTS SIZE sends COUNT super-packets of UDP, each of so
// many segments of so many bytes.
func send(args []string) error {
	n, err := integers(args[1:])
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	oob := make([]byte, unix.CmsgSpace(2))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	header.Level, header.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	header.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(oob[unix.CmsgLen(0):], uint16(n[2]))
	for range n[0] {
		if _, _, err := conn.(*net.UDPConn).WriteMsgUDP(make([]byte, n[1]*n[2]), oob, nil); err != nil {
			return err
		}
	}
	return nil
}

// receive PORT BYTES says "bound", receives so many bytes of UDP, with super-packets
// left whole, and says in how many pieces they came.
func receive(args []string) error {
	n, err := integers(args)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: n[0]})
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
		optErr = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20))
	}); err != nil || optErr != nil {
		return errors.Join(err, optErr)
	}
	fmt.Println("bound")
	pieces := 0
	buf := make([]byte, 1<<16)
	for got := 0; got < n[1]; pieces++ {
		k, err := conn.Read(buf)
		if err != nil {
			return err
		}
		got += k
	}
	fmt.Println(pieces)
	return nil
}

// echo PORT says "bound" and returns every datagram, until the end of its input.
func echo(args []string) error {
	n, err := integers(args)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: n[0]})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		conn.Close()
	}()
	fmt.Println("bound")
	buf := make([]byte, 1<<16)
	for {
		k, from, err := conn.ReadFromUDP(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := conn.WriteToUDP(buf[:k], from); err != nil {
			return err
		}
	}
}

// ping ADDRESS answers every line of its input, which is a time, with how many
// microseconds an echo took, or "lost" if it has not come in that time.
func ping(args []string) error {
	conn, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewScanner(os.Stdin)
	buf := make([]byte, 64)
	for sequence := 0; in.Scan(); sequence++ {
		limit, err := time.ParseDuration(in.Text())
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := conn.SetReadDeadline(begin.Add(limit)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(strconv.Itoa(sequence))); err != nil {
			return err
		}
		for {
			k, err := conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				fmt.Println("lost")
				break
			}
			if err != nil {
				return err
			}
			if string(buf[:k]) == strconv.Itoa(sequence) { // not an earlier, late one
				fmt.Println(time.Since(begin).Microseconds())
				break
			}
		}
	}
	return in.Err()
}

// block says "ready" and waits for its end.
func block([]string) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	fmt.Println("ready")
	<-hangup
	return nil
}

// up NAME KIND starts a lab of two nodes, says "ready", and ends it with its
// input, or at SIGINT as a command does. KIND is plain, impaired, external, or fabric,
// which has a switch and routers between three.
func up(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	topo := ring(args[0], 2)
	if args[1] == "impaired" {
		topo.Links[0].Directions[0] = topology.Impairment{Delay: time.Millisecond}
	}
	if args[1] == "external" {
		withExternal(topo)
	}
	if args[1] == "fabric" {
		topo = routed(args[0]).Topology
	}
	l, err := Start(ctx, topo, Options{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	input := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if strings.TrimSpace(line) == "release" {
			err = l.Release(ctx)
		}
		input <- err
	}()
	select {
	case <-input:
	case <-ctx.Done():
	case <-l.Done():
		return l.Err()
	}
	return l.Close()
}

// intrude SOCKET says whether a lab's socket was "refused" to it or "open".
func intrude(args []string) error {
	sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: args[0]})
	if err != nil {
		return err
	}
	conn := control.New(sock, nil)
	defer conn.Close()
	_, err = methodInfo.Call(context.Background(), conn, nil)
	if errors.Is(err, control.ErrClosed) {
		fmt.Println("refused")
		return nil
	}
	fmt.Println("open", err)
	return nil
}

// squat SOCKET takes a lab's name, and says "ready".
func squat(args []string) error {
	if _, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: args[0]}); err != nil {
		return err
	}
	return block(nil)
}

// limited NAME tells with what code a lab fails that may have no network
// namespaces.
func limited(args []string) error {
	if err := os.WriteFile("/proc/sys/user/max_net_namespaces", []byte("0"), 0); err != nil {
		return err
	}
	_, err := Start(context.Background(), ring(args[0], 2), Options{})
	if e := (*control.Error)(nil); errors.As(err, &e) {
		fmt.Println(e.Code)
	}
	return err
}

func integers(args []string) ([]int, error) {
	var all []int
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}
