package control

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"
)

// tcpConns are the ends of a TCP connection.
func tcpConns(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = l.Accept()
	if err != nil {
		a.Close()
		t.Fatal(err)
	}
	return a, b
}

// tcpPair is pair over TCP.
func tcpPair(t *testing.T, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	return streamPair(t, here, there)
}

func streamPair(t testing.TB, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	x, y := tcpConns(t)
	a, b := OverStream(x, here), OverStream(y, there)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// tlsPair is pair over TLS.
func tlsPair(t *testing.T, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	x, y := tcpConns(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := OverStream(tls.Client(x, &tls.Config{InsecureSkipVerify: true}), here) // the certificate is a test's
	b := OverStream(tls.Server(y, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}), there)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
