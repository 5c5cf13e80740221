package provider_test

import (
	"bytes"
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

func checkResult(t *testing.T, got provider.ResultEx, kind provider.OperationType, context any, h *host) {
	t.Helper()
	if got.Status != provider.StatusSuccess || got.Type != kind || got.RequestContext != context || got.QPContext != h {
		t.Fatalf("got %v of type %v for %v, want success of type %v for %v", got.Status, got.Type, got.RequestContext, kind, context)
	}
}
