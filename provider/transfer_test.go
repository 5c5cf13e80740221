package provider_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestTransfers(t *testing.T) {
	for _, net := range []struct {
		name                              string
		loss, duplicate, reorder, corrupt float64
	}{
		{name: "clean"},
		{name: "loss", loss: 0.05},
		{name: "everything", loss: 0.05, duplicate: 0.05, reorder: 0.05, corrupt: 0.05},
	} {
		for _, size := range []int{0, 1, 64, 4096, 4097, 65536, 300001} {
			t.Run(net.name, func(t *testing.T) {
				w := newWorld(t)
				client, server := w.connect()
				w.path.Loss, w.path.Duplicate, w.path.Reorder, w.path.Corrupt = net.loss, net.duplicate, net.reorder, net.corrupt

				before := bytes.Clone(server.memory)
				w.want(client.qp.Write("w", client.at(100, size), base+200, server.mr.RemoteToken(), 0), provider.StatusSuccess)
				checkResult(t, client.results(1)[0], provider.OperationTypeWrite, "w", client)
				copy(before[200:], client.memory[100:100+size])
				if !bytes.Equal(server.memory, before) {
					t.Fatal("a write changed other than what was written")
				}

				before = bytes.Clone(client.memory)
				w.want(client.qp.Read("r", client.at(300, size), base+400, server.mr.RemoteToken(), 0), provider.StatusSuccess)
				checkResult(t, client.results(1)[0], provider.OperationTypeRead, "r", client)
				copy(before[300:], server.memory[400:400+size])
				if !bytes.Equal(client.memory, before) {
					t.Fatal("a read changed other than what was read")
				}

				w.want(server.qp.Receive("v", server.at(500, size)), provider.StatusSuccess)
				w.want(client.qp.Send("s", client.at(7, size), 0), provider.StatusSuccess)
				checkResult(t, client.results(1)[0], provider.OperationTypeSend, "s", client)
				got := server.results(1)[0]
				checkResult(t, got, provider.OperationTypeReceive, "v", server)
				if int(got.BytesTransferred) != size || !bytes.Equal(server.memory[500:500+size], client.memory[7:7+size]) {
					t.Fatal("a send arrived wrong")
				}
			})
		}
	}
}

func checkResult(t testing.TB, got provider.ResultEx, kind provider.OperationType, context any, h *host) {
	t.Helper()
	if got.Status != provider.StatusSuccess || got.Type != kind || got.RequestContext != context || got.QPContext != h {
		t.Fatalf("got %v of type %v for %v, want success of type %v for %v", got.Status, got.Type, got.RequestContext, kind, context)
	}
}

func TestRemoteAddress(t *testing.T) {
	t.Run("NDK-POST-23 NDK-POST-25 write", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		server.receive(1)
		want := bytes.Clone(server.memory)
		copy(want[12345:], client.memory[:9000])
		w.want(client.qp.Write(nil, client.at(0, 9000), base+12345, server.mr.RemoteToken(), 0), success)
		client.result(success)
		if !bytes.Equal(server.memory, want) {
			t.Fatal("not just what was written has changed")
		}
		w.silent(server.cq) // no receive is consumed
		w.sendTo(client, server, 0)
		server.result(success)
	})
	t.Run("NDK-POST-24 NDK-POST-25 read into several pieces", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		want, same := bytes.Clone(client.memory), server.unchanged()
		var sgl []provider.SGE
		from := 12300
		for _, piece := range pieces {
			sgl = append(sgl, client.at(piece.offset, piece.length)...)
			copy(want[piece.offset:piece.offset+piece.length], server.memory[from:])
			from += piece.length
		}
		w.want(client.qp.Read(nil, sgl, base+12300, server.mr.RemoteToken(), 0), success)
		client.result(success)
		if !bytes.Equal(client.memory, want) {
			t.Fatal("a read got other than the remote bytes, or touched others of its own")
		}
		same()
	})
}

// pieces are of memory, neither in the order of their addresses nor of whole
// packets; the last is not filled by what they are used for.
var pieces = []struct{ offset, length int }{{50000, 5000}, {7, 1}, {200_000, 4096}, {900, 4001}}

func TestReceive(t *testing.T) {
	t.Run("NDK-POST-21 a receive of several pieces", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		var sgl []provider.SGE
		want, same := bytes.Clone(server.memory), client.unchanged()
		message := slices.Concat(client.memory[300_000:306_000], client.memory[3:4003])
		rest := message
		for _, piece := range pieces {
			sgl = append(sgl, server.at(piece.offset, piece.length)...)
			n := copy(want[piece.offset:piece.offset+piece.length], rest)
			rest = rest[n:]
		}
		if len(rest) > 0 {
			t.Fatal("the message does not fit")
		}
		w.want(server.qp.Receive("receive", sgl), success)
		w.want(client.qp.Send(nil, append(client.at(300_000, 6000), client.at(3, 4000)...), 0), success)
		client.result(success)
		r := server.result(success)
		if r.RequestContext != "receive" || int(r.BytesTransferred) != len(message) {
			t.Errorf("got %+v, want %d bytes", r, len(message))
		}
		if !bytes.Equal(server.memory, want) {
			t.Error("the message is not where it was to be received, or not only there")
		}
		same()
	})
}
