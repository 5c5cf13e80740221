package provider_test

import (
	"slices"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestResults(t *testing.T) {
	t.Run("NDK-CQ-27 NDK-CQ-28 NDK-CQ-35 as many as there are and fit", func(t *testing.T) {
		w := newWorld(t)
		_, server := w.connect()
		check := func(got, want int) {
			t.Helper()
			if got != want {
				t.Fatalf("%d results, want %d", got, want)
			}
		}
		check(server.cq.Results(make([]provider.Result, 3)), 0)
		check(server.cq.ResultsEx(make([]provider.ResultEx, 3)), 0)
		for i := range 5 {
			w.want(server.qp.Receive(i, nil), success)
		}
		server.qp.Flush()
		check(server.cq.Results(nil), 0)
		plain, ex := make([]provider.Result, 2), make([]provider.ResultEx, 2)
		check(server.cq.Results(plain), 2)
		check(server.cq.ResultsEx(ex), 2)
		last := make([]provider.Result, 3)
		check(server.cq.Results(last), 1)
		// NDK-CQ-37: each once, in the order of posting.
		got := []any{plain[0].RequestContext, plain[1].RequestContext, ex[0].RequestContext, ex[1].RequestContext, last[0].RequestContext}
		if !slices.Equal(got, []any{0, 1, 2, 3, 4}) {
			t.Fatalf("got %v", got)
		}
		check(server.cq.Results(last), 0)
	})
	t.Run("NDK-CQ-29 NDK-CQ-30 NDK-CQ-31 NDK-CQ-34 NDK-CQ-37 kinds and contexts", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.want(server.qp.Receive("receive", server.at(0, 100)), success)
		w.want(client.qp.Send("send", client.at(0, 77), 0), success)
		w.want(client.qp.Write("write", client.at(0, 10), base, server.mr.RemoteToken(), 0), success)
		w.want(client.qp.Read(nil, client.at(0, 10), base, server.mr.RemoteToken(), 0), success)
		got := append(client.results(3), server.results(1)...)
		for i, want := range []struct {
			kind    provider.OperationType
			context any
			h       *host
			bytes   uint32
		}{
			{provider.OperationTypeSend, "send", client, 0},
			{provider.OperationTypeWrite, "write", client, 0},
			{provider.OperationTypeRead, nil, client, 0},
			{provider.OperationTypeReceive, "receive", server, 77},
		} {
			checkResult(t, got[i], want.kind, want.context, want.h)
			if got[i].BytesTransferred != want.bytes || got[i].ProviderErrorCode != 0 || got[i].TypeSpecificCompletionOutput != 0 {
				t.Errorf("got %+v", got[i])
			}
		}
	})
	t.Run("NDK-CQ-36 two QPs on one CQ", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		one, two := h.newQPOn(h.cq, h.cq, 1), h.newQPOn(h.cq, h.cq, 2)
		for _, qp := range []*provider.QP{one, two, one} {
			w.want(qp.Receive(nil, nil), success)
		}
		one.Flush()
		// NDK-FLUSH-04: the other QP's requests are unaffected.
		for _, r := range h.results(2) {
			if r.QPContext != 1 {
				t.Fatalf("of QP %v", r.QPContext)
			}
		}
		w.silent(h.cq)
		two.Flush()
		if r := h.results(1)[0]; r.QPContext != 2 {
			t.Fatalf("of QP %v", r.QPContext)
		}
	})
	t.Run("NDK-POST-01 each on its own CQ", func(t *testing.T) {
		w := newWorld(t)
		var initiated *provider.CQ
		for _, h := range w.hosts {
			h.cq, _ = h.newCQ(8)
			initiated, _ = h.newCQ(8)
			h.qp = h.newQPOn(h.cq, initiated, nil)
		}
		server, client := w.hosts[0], w.hosts[1]
		w.join(client, server)
		w.want(server.qp.Receive(nil, nil), success)
		w.want(client.qp.Send(nil, nil, 0), success)
		server.result(success)
		w.silent(client.cq)
		if r := w.results(initiated, 1)[0]; r.Type != provider.OperationTypeSend {
			t.Fatalf("got %+v", r)
		}
		w.silent(initiated)
	})
	t.Run("a completion of an error says why", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		w.want(client.qp.Write(nil, client.at(0, 1), 1, 1, 0), success)
		if r := client.result(provider.StatusRemoteResources); r.ProviderErrorCode == 0 {
			t.Fatalf("got %+v", r)
		}
	})
}
