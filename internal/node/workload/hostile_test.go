package workload

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// TestWrongPartner has ends meet that were told different things: each says what is wrong,
// and none is brought down.
func TestWrongPartner(t *testing.T) {
	base := Spec{Operation: topology.Send, Size: 100, Depth: 4, Count: 20, Verify: true, Seed: 1}
	for name, test := range map[string]struct {
		client, server func(*Spec)
		atClient       string // how the client's error begins; "": it has none
		atServer       string
	}{
		"size": {func(s *Spec) { s.Size = 50 }, func(*Spec) {}, "", "message 0 has 50 bytes, not 100"},
		"mix": {func(s *Spec) { s.Sizes, s.Size = []uint64{50}, 50 }, func(s *Spec) { s.Sizes, s.Mixed = []uint64{60}, true },
			"", "message 0 has 50 bytes, not 60"},
		"sweep": {func(s *Spec) { s.Size = 50 }, func(s *Spec) { s.Sizes = []uint64{10, 100} },
			"", "message 0 has 50 bytes, not one of [10 100]"},
		"too long": {func(s *Spec) { s.Size = 200 }, func(*Spec) {}, "message 0: STATUS_REMOTE_RESOURCES", "receive: STATUS_BUFFER_OVERFLOW"},
		"seed":     {func(s *Spec) { s.Seed = 2 }, func(*Spec) {}, "", "message 0: byte 0 is "},
		"lane":     {func(s *Spec) { s.QPs = 2 }, func(*Spec) {}, "connect: STATUS_CONNECTION_REFUSED", "accept: STATUS_CANCELLED"},
		"answer": {func(s *Spec) { s.Measure = topology.Latency; s.Size = 50 }, func(s *Spec) { s.Measure = topology.Latency; s.Seed = 2 },
			"message 0: byte 0 is ", "message 0 has 50 bytes, not 100"},
		"written size": {func(s *Spec) { s.Operation = topology.Write; s.Size = 200 }, func(s *Spec) { s.Operation = topology.Write },
			"message ", "message 0 has 200 bytes, not 100"},
		"write": {func(s *Spec) { s.Operation = topology.Write }, func(*Spec) {}, "message 0: STATUS_REMOTE_RESOURCES", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client, at := base, base
			test.client(&client)
			test.server(&at)
			l := newLab(t)
			server, err := serveMessages(l.devices[1], l.clock, nil, at, serverAddress)
			if err != nil {
				t.Fatal(err)
			}
			var got *Result
			var found *ServerResult
			if _, err := runStream(l.devices[0], l.clock, nil, client, clientAddress, serverAddress, func(r Result) { got = &r }); err != nil {
				t.Fatal(err)
			}
			l.clock.RunUntil(func() bool { return got != nil }, time.Minute)
			server.Stop(func(r ServerResult) { found = &r })
			l.clock.RunUntil(func() bool { return found != nil }, time.Minute)
			if got == nil || found == nil {
				t.Fatal("an end does not come to its end")
			}
			for _, end := range []struct{ what, want, got string }{{"client", test.atClient, got.Error}, {"server", test.atServer, found.Error}} {
				if !strings.HasPrefix(end.got, end.want) || end.want == "" && end.got != "" {
					t.Errorf("the %s says %q, want %q", end.what, end.got, end.want)
				}
			}
			for i, m := range l.devices {
				if usage := m.Usage(); usage.Instances != 0 {
					t.Errorf("device %d: %+v", i, usage)
				}
			}
		})
	}
}

// TestSecondClient has a server that has its client be asked by another.
func TestSecondClient(t *testing.T) {
	spec := Spec{Operation: topology.Send, Size: 10, Depth: 1, Duration: time.Second, Verify: true}
	l := newLab(t)
	var second *Result
	got, found := l.run(spec, func(*target) {
		l.clock.Run(100 * time.Millisecond)
		if _, err := runStream(l.devices[0], l.clock, nil, spec, clientAddress, serverAddress, func(r Result) { second = &r }); err != nil {
			t.Fatal(err)
		}
	})
	if got.Error != "" || !spec.Conclude(&got, found) {
		t.Errorf("the first: %+v, %+v", got, found)
	}
	if second == nil || second.Error != "connect: STATUS_CONNECTION_REFUSED" {
		t.Errorf("the second: %+v", second)
	}
}

// TestStranger has a consumer of another kind connect to a server: it is refused, and the
// client that the server is for is not.
func TestStranger(t *testing.T) {
	spec := Spec{Operation: topology.Send, Size: 10, Depth: 1, Count: 5, Verify: true}
	l := newLab(t)
	server, err := serveMessages(l.devices[1], l.clock, nil, spec, serverAddress)
	if err != nil {
		t.Fatal(err)
	}
	adapter, status := l.devices[0].OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	cq, _ := adapter.CreateCQ(8, nil, nil, nil, nil, nil)
	pd, _ := adapter.CreatePD(nil, nil)
	for _, private := range [][]byte{nil, []byte("hello"), hello{channel: 1}.encode()} {
		qp, _ := pd.CreateQP(cq, cq, nil, 4, 4, 1, 1, 0, nil, nil)
		connector, _ := adapter.CreateConnector(nil, nil)
		var answer provider.Status
		connector.Connect(qp, netip.AddrPortFrom(clientAddress, 0), serverAddress, 1, 1, private,
			func(_ any, status provider.Status) { answer = status }, nil)
		if l.clock.Run(time.Second); answer != provider.StatusConnectionRefused {
			t.Errorf("with private data %q: %v", private, answer)
		}
		connector.Close(nil, nil)
		qp.Close(nil, nil)
	}
	var got *Result
	if _, err := runStream(l.devices[0], l.clock, nil, spec, clientAddress, serverAddress, func(r Result) { got = &r }); err != nil {
		t.Fatal(err)
	}
	l.clock.Run(time.Second)
	if got == nil || got.Messages != 5 || got.Error != "" {
		t.Errorf("client %+v", got)
	}
	server.Stop(func(found ServerResult) {
		if found != (ServerResult{Verified: 5}) {
			t.Errorf("server %+v", found)
		}
	})
	l.clock.Run(time.Second)
}
