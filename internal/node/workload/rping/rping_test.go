package rping

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/node/workload/internal/loopback"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The text of every round is what rping of rdma-core sends: it is found in a
// capture of ten rounds of that.
func TestTextIsRpings(t *testing.T) {
	capture, err := os.ReadFile("../../../provider/roce/testdata/captures/rping.pcap")
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, DefaultSize)
	for round := range 10 {
		Fill(text, round)
		if n := bytes.Count(capture, text); n != 2 { // as it was read and as it was written
			t.Errorf("round %d: %q is %d times in the capture, want 2", round, text, n)
		}
	}
}

// exchange has a client call a server, and returns what each says.
func exchange(t *testing.T, pend bool, rounds int, server, client Options) (serverErr, clientErr error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	theirs, address := loopback.Adapter(t, 110, pend)
	ours, local := loopback.Adapter(t, 111, pend)
	client.Local = local
	at := netip.AddrPortFrom(address, DefaultPort)
	listening, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- Serve(ctx, theirs, at, server, func() { close(listening) }) }()
	select {
	case <-listening:
	case err := <-served:
		return err, nil
	}
	if clientErr = Call(ctx, ours, at, rounds, client); clientErr != nil {
		time.AfterFunc(time.Second, cancel) // of a server that knows nothing of it
	}
	return <-served, clientErr
}

func TestExchange(t *testing.T) {
	for _, test := range []struct {
		name         string
		pend         bool
		size, rounds int
	}{
		{"smallest", false, MinSize, 3},
		{"default", true, DefaultSize, 60}, // the text begins again after 58 rounds
		{"largest", false, MaxSize, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			var served, called bytes.Buffer
			serverErr, clientErr := exchange(t, test.pend, test.rounds, Options{Size: test.size, Verbose: &served}, Options{Size: test.size, Verbose: &called})
			if serverErr != nil || clientErr != nil {
				t.Fatal(serverErr, clientErr)
			}
			if got := strings.Count(served.String(), "\n"); got != test.rounds {
				t.Errorf("%d rounds, want %d", got, test.rounds)
			}
			if got := strings.ReplaceAll(served.String(), "server ping data: ", "ping data: "); got != called.String() {
				t.Errorf("the server had\n%s and the client\n%s", got, called.String())
			}
		})
	}
}

// A client that lends more than the server has room for is told by its end.
func TestClientLendsTooMuch(t *testing.T) {
	serverErr, clientErr := exchange(t, false, 1, Options{Size: 64}, Options{Size: 65})
	if serverErr == nil || !strings.Contains(serverErr.Error(), "lent 65 bytes") {
		t.Errorf("server: %v", serverErr)
	}
	if clientErr == nil {
		t.Error("the client had no error")
	}
}

func TestSizes(t *testing.T) {
	adapter, address := loopback.Adapter(t, 110, false)
	for _, size := range []int{0, MinSize - 1, MaxSize + 1} {
		if err := Call(t.Context(), adapter, netip.AddrPortFrom(address, 1), 1, Options{Size: size}); err == nil {
			t.Errorf("size %d was taken", size)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	adapter, local := loopback.Adapter(t, 110, false)
	_, address := loopback.Adapter(t, 111, false)
	if err := Call(t.Context(), adapter, netip.AddrPortFrom(address, 1), 1, Options{Size: DefaultSize, Local: local}); err == nil {
		t.Error("a call to a port that nobody listens at succeeded")
	}
}
