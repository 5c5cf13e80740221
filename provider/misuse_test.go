package provider_test

import (
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// What a careless consumer does is answered by a status, or does nothing. It
// never panics, and never does harm to others.

func TestForeignCQ(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	srq := track(h, must(h.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
	for name, foreign := range map[string]*provider.CQ{
		"another device's": w.hosts[1].cq, "another instance's": w.another(h).cq,
	} {
		for _, cqs := range [][2]*provider.CQ{{foreign, h.cq}, {h.cq, foreign}} {
			_, status := h.pd.CreateQP(cqs[0], cqs[1], nil, 1, 1, 1, 1, 0, nil, nil)
			if status != provider.StatusInvalidParameter {
				t.Errorf("a QP with %s CQ: %v", name, status)
			}
			_, status = h.pd.CreateQPWithSRQ(cqs[0], cqs[1], srq, nil, 1, 1, 0, nil, nil)
			if status != provider.StatusInvalidParameter {
				t.Errorf("a QP with an SRQ and %s CQ: %v", name, status)
			}
		}
	}
}

func TestNilArguments(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	var info provider.AdapterInfo
	shared := client.share(client.ephemeral())
	var mr *provider.MR
	var mw *provider.MW
	mdl := &provider.MDL{VirtualAddress: 1, Bytes: make([]byte, 1)}
	unregistered := track(client, must(client.pd.CreateMR(false, nil, nil)))
	size, fbo, lam := uint32(0), uint32(0), provider.LAM{}
	idle := client.newConnector()
	for name, got := range map[string]provider.Status{
		"QueryAdapterInfo":          client.QueryAdapterInfo(&info, nil),
		"GetConnectionData":         client.conn.GetConnectionData(nil, nil, nil, nil),
		"Connector.GetLocalAddress": client.conn.GetLocalAddress(nil, nil),
		"Connector.GetPeerAddress":  client.conn.GetPeerAddress(nil, nil),
		"Listener.GetLocalAddress":  server.listener.GetLocalAddress(nil, nil),
		"SharedEndpoint":            shared.GetLocalAddress(nil, nil),
		"Register":                  unregistered.Register(nil, 1, 0, nil, nil),
		"Deregister":                client.mr.Deregister(nil, nil),
		"BuildLAM, no MDL":          client.BuildLAM(nil, 1, nil, nil, &lam, &size, &fbo),
		"BuildLAM, no size":         client.BuildLAM(mdl, 1, nil, nil, &lam, nil, &fbo),
		"BuildLAM, no place":        client.BuildLAM(mdl, 1, nil, nil, &lam, &size, nil),
		"FastRegister":              client.qp.FastRegister(nil, nil, nil, 0, 1, 0, 0),
		"Bind, no region":           client.qp.Bind(nil, nil, nil, 0, 1, 0),
		"Bind, no window":           client.qp.Bind(nil, client.mr, nil, base, 1, 0),
		"Invalidate":                client.qp.Invalidate(nil, nil, 0),
		"Invalidate, typed region":  client.qp.Invalidate(nil, mr, 0),
		"Invalidate, typed window":  client.qp.Invalidate(nil, mw, 0),
		"Invalidate, another kind":  client.qp.Invalidate(nil, client.pd, 0),
		"Disconnect":                client.conn.Disconnect(nil, nil),
		"Connect, no callback":      idle.Connect(client.newQP(), client.ephemeral(), server.service(), 1, 1, nil, nil, nil),
		"Connect, no QP":            client.dialFrom(idle, nil, client.ephemeral(), server.service()).returned,
		"Connect, no endpoint":      client.dialShared(idle, client.newQP(), nil, server.service()).returned,
	} {
		if got != provider.StatusInvalidParameter {
			t.Errorf("%s: %v", name, got)
		}
	}
	client.ReleaseLAM(nil)
	client.ReleaseLAM(&provider.LAM{})
	w.want(client.BuildLAM(mdl, 1, nil, nil, nil, &size, &fbo), provider.StatusBufferTooSmall)
	_, status := client.CreateListener(nil, nil, nil, nil)
	w.want(status, provider.StatusInvalidParameter)
	_, status = client.pd.CreateQP(nil, nil, nil, 1, 1, 1, 1, 0, nil, nil)
	w.want(status, provider.StatusInvalidParameter)
	_, status = client.pd.CreateQPWithSRQ(client.cq, client.cq, nil, nil, 1, 1, 0, nil, nil)
	w.want(status, provider.StatusInvalidParameter)
	w.want(client.qp.QueryExtension(provider.GUID{}, provider.Version{}, nil), provider.StatusNotSupported)
	w.want(client.qp.Write(nil, nil, base, server.mr.RemoteToken(), 0), success) // the connection is as it was
	client.result(success)
}

// A ring of MDLs has no end, but what it describes has.
func TestRingOfMDLs(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	for name, bytes := range map[string][]byte{"empty": nil, "not empty": make([]byte, 4)} {
		ring := &provider.MDL{VirtualAddress: base, Bytes: bytes}
		ring.Next = &provider.MDL{VirtualAddress: base + uint64(len(bytes)), Bytes: bytes, Next: ring}
		way := ring // into the ring, past empty ranges
		for range 5 {
			way = &provider.MDL{VirtualAddress: base, Next: way}
		}
		mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
		if got := mr.Register(way, 16, 0, nil, nil); got != provider.StatusInvalidParameter {
			t.Errorf("%s: %v", name, got)
		}
	}
}
