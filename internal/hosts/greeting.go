package hosts

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The greeting of a trunk. It authenticates both ends of a stream, and has them exchange the ports of their datagrams:
//
//	dialer:   a nonce
//	listener: a nonce, its port, and the code of all three
//	dialer:   its port, and the code of all four
//
// Then datagrams pass, the dialer's until the listener's answer comes, which shows that no firewall stops them. A byte on the
// stream, from the dialer, ends the greeting. A code is an HMAC under the lab's secret (Credentials.sign) that also
// covers the names of both hosts; the codes of the two ends have different keys, so that neither can be sent back.

const (
	nonceLen = 32
	portLen  = 2
	// datagramLen is that of no ping (trunk.PingLen): an engine that gets one of these late drops it.
	datagramLen = sha256.Size + 1
	// datagramRetry is the time after which a datagram counts as lost.
	datagramRetry = 50 * time.Millisecond
)

var errCode = errors.New("the peer does not know the lab's secret")

// datagrams is the error of datagrams that do not pass.
var errDatagrams = errors.New("TCP passes but UDP does not: a firewall between hosts has to let both pass")

// greetAsDialer greets over a stream, which it closes if it fails.
func (c *Credentials) greetAsDialer(ctx context.Context, stream *net.TCPConn, name string) (_ *sockets, err error) {
	s := &sockets{stream: stream}
	defer endGreeting(ctx, s, &err)()
	own := make([]byte, nonceLen)
	if _, err := rand.Read(own); err != nil {
		return nil, err
	}
	if _, err := stream.Write(own); err != nil {
		return nil, err
	}
	heard := make([]byte, nonceLen+portLen+sha256.Size)
	if _, err := io.ReadFull(stream, heard); err != nil {
		return nil, err
	}
	theirs, port, code := heard[:nonceLen], heard[nonceLen:nonceLen+portLen], heard[nonceLen+portLen:]
	if !hmac.Equal(code, c.sign("trunk listener", []byte(name), own, theirs, port)) {
		return nil, errCode
	}
	local, remote := stream.LocalAddr().(*net.TCPAddr), stream.RemoteAddr().(*net.TCPAddr)
	s.pings, err = net.DialUDP("udp", &net.UDPAddr{IP: local.IP, Zone: local.Zone}, &net.UDPAddr{IP: remote.IP, Port: int(binary.BigEndian.Uint16(port)), Zone: remote.Zone})
	if err != nil {
		return nil, err
	}
	ownPort := binary.BigEndian.AppendUint16(nil, uint16(s.pings.LocalAddr().(*net.UDPAddr).Port))
	if _, err := stream.Write(append(ownPort, c.sign("trunk dialer", []byte(name), own, theirs, port, ownPort)...)); err != nil {
		return nil, err
	}
	question, answer := c.datagrams(name, own, theirs)
	got := make([]byte, datagramLen)
	for {
		// One that cannot be sent, as the other end is not there yet, is as good as lost.
		_, _ = s.pings.Write(question)
		if err := s.pings.SetReadDeadline(time.Now().Add(datagramRetry)); err != nil {
			return nil, err
		}
		n, err := s.pings.Read(got)
		if err == nil && hmac.Equal(got[:n], answer) {
			break
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil, errDatagrams
		}
	}
	if err := s.pings.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	_, err = stream.Write([]byte{1})
	return s, err
}

// greetAsListener greets over a stream, which it closes if it fails.
func (c *Credentials) greetAsListener(ctx context.Context, stream *net.TCPConn, name string) (_ *sockets, err error) {
	s := &sockets{stream: stream}
	defer endGreeting(ctx, s, &err)()
	theirs := make([]byte, nonceLen)
	if _, err := io.ReadFull(stream, theirs); err != nil {
		return nil, err
	}
	own := make([]byte, nonceLen)
	if _, err := rand.Read(own); err != nil {
		return nil, err
	}
	local, remote := stream.LocalAddr().(*net.TCPAddr), stream.RemoteAddr().(*net.TCPAddr)
	if s.pings, err = net.ListenUDP("udp", &net.UDPAddr{IP: local.IP, Zone: local.Zone}); err != nil {
		return nil, err
	}
	port := binary.BigEndian.AppendUint16(nil, uint16(s.pings.LocalAddr().(*net.UDPAddr).Port))
	told := append(append([]byte{}, own...), port...)
	if _, err := stream.Write(append(told, c.sign("trunk listener", []byte(name), theirs, own, port)...)); err != nil {
		return nil, err
	}
	heard := make([]byte, portLen+sha256.Size)
	if _, err := io.ReadFull(stream, heard); err != nil {
		return nil, err
	}
	if !hmac.Equal(heard[portLen:], c.sign("trunk dialer", []byte(name), theirs, own, port, heard[:portLen])) {
		return nil, errCode
	}
	peer := &net.UDPAddr{IP: remote.IP, Port: int(binary.BigEndian.Uint16(heard)), Zone: remote.Zone}
	if err := connect(s.pings, peer); err != nil {
		return nil, err
	}
	question, answer := c.datagrams(name, theirs, own)
	over := make(chan error, 1) // of the byte that ends the greeting
	go func() {
		_, err := io.ReadFull(stream, make([]byte, 1))
		over <- err
		// Any deadline that is over ends the read below.
		_ = s.pings.SetReadDeadline(time.Unix(1, 0))
	}()
	got := make([]byte, datagramLen)
	for {
		n, from, err := s.pings.ReadFromUDP(got)
		switch {
		case err == nil && hmac.Equal(got[:n], question):
			// If it is lost, another question comes.
			_, _ = s.pings.WriteToUDP(answer, from)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := <-over; err != nil {
				return nil, fmt.Errorf("greeting: %w", err)
			}
			return s, s.pings.SetReadDeadline(time.Time{})
		case err != nil && !errors.Is(err, unix.ECONNREFUSED):
			stream.Close()
			<-over
			return nil, err
		}
	}
}

// endGreeting has a greeting end with ctx. The caller calls the function that it returns when the greeting is over: it closes the sockets if
// there is an error.
func endGreeting(ctx context.Context, s *sockets, err *error) func() {
	stop := context.AfterFunc(ctx, func() {
		// The stream alone: a read of datagrams ends by that of it, or has a deadline.
		s.stream.Close()
	})
	return func() {
		if !stop() && *err == nil {
			*err = ctx.Err() // the stream is closed
		}
		if *err == nil {
			return
		}
		s.stream.Close()
		if s.pings != nil {
			s.pings.Close()
		}
	}
}

// datagrams returns those that show that datagrams pass.
func (c *Credentials) datagrams(name string, dialer, listener []byte) (question, answer []byte) {
	question = append([]byte{'?'}, c.sign("trunk question", []byte(name), dialer, listener)...)
	answer = append([]byte{'!'}, c.sign("trunk answer", []byte(name), dialer, listener)...)
	return question, answer
}

// connect has a bound socket exchange datagrams with peer alone.
func connect(c *net.UDPConn, peer *net.UDPAddr) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var to unix.Sockaddr
	if ip := peer.IP.To4(); ip != nil {
		to = &unix.SockaddrInet4{Port: peer.Port, Addr: [4]byte(ip)}
	} else {
		six := &unix.SockaddrInet6{Port: peer.Port, Addr: [16]byte(peer.IP.To16())}
		if i, err := net.InterfaceByName(peer.Zone); err == nil {
			six.ZoneId = uint32(i.Index)
		}
		to = six
	}
	var connectErr error
	err = raw.Control(func(fd uintptr) { connectErr = unix.Connect(int(fd), to) })
	return errors.Join(err, connectErr)
}
