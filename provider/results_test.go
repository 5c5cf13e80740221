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
		client, server := w.hosts[0], w.hosts[1]
		received, _ := client.newCQ(8)
		client.qp = client.newQPOn(received, client.cq, nil)
		w.connect()
		_, m := server.borrow(allRights)
		posts := map[string]func() provider.Status{
			"SendAndInvalidate": func() provider.Status { return client.qp.SendAndInvalidate(nil, nil, 0, m.token) },
		}
		for _, i := range initiators(server) {
			posts[i.name] = func() provider.Status { return i.post(client.qp, nil, nil, 0) }
		}
		for name, operation := range localOperations {
			post := operation.make(client, false)
			posts[name] = func() provider.Status { return post(client.qp, nil, 0) }
		}
		server.receive(2)
		for name, post := range posts {
			w.want(post(), success)
			w.settle()
			if got := make([]provider.Result, 2); client.cq.Results(got) != 1 || got[0].Status != success {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		w.silent(received)
		w.want(client.qp.Receive(nil, nil), success)
		w.want(server.qp.Send(nil, nil, 0), success)
		if r := w.results(received, 1)[0]; r.Type != provider.OperationTypeReceive || r.Status != success {
			t.Errorf("got %+v", r)
		}
		w.silent(received)
		w.silent(client.cq)
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
