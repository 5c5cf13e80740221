package provider_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

type version = provider.Version

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		name   string
		asked  version
		want   version
		status provider.Status
	}{
		{"NDK-VER-01 NDK-VER-02 an old consumer", version{1, 0}, version{1, 2}, success},
		{"NDK-VER-01 NDK-VER-02 the highest of the old", version{1, 2}, version{1, 2}, success},
		{"NDK-VER-01 NDK-VER-02 2.0", version{2, 0}, version{2, 1}, success},
		{"NDK-VER-01 NDK-VER-02 2.1", version{2, 1}, version{2, 1}, success},
		{"NDK-VER-03 above the highest of the old", version{1, 3}, version{}, provider.StatusBadVersion},
		{"NDK-VER-03 above the highest", version{2, 2}, version{}, provider.StatusBadVersion},
		{"NDK-VER-04 no such major", version{0, 0}, version{}, provider.StatusBadVersion},
		{"NDK-VER-04 no such major yet", version{3, 0}, version{}, provider.StatusBadVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			device := w.hosts[0].device
			a, status := device.OpenAdapter(provider.OpenParameters{Version: c.asked})
			w.want(status, c.status)
			if status != success {
				if a != nil {
					t.Error("an instance that failed to open")
				}
				return
			}
			size := uint32(provider.AdapterInfoSize)
			var info provider.AdapterInfo
			w.want(a.QueryAdapterInfo(&info, &size), success)
			if info.Version != c.want || a.Info().Version != c.want {
				t.Errorf("info of version %v, want %v", info.Version, c.want)
			}
			all := newObjects(w, w.hosts[0], a)
			listening := *w.hosts[0]
			listening.Adapter = a
			var delivered *provider.Connector // by a listener, not made by the consumer
			listening.listen(ignore(&delivered))
			w.hosts[1].dial(w.hosts[1].newConnector(), &listening)
			w.settle()
			for _, o := range append(all.list(), a, delivered) {
				if o.Header().Version != c.want || o.Version() != c.want {
					t.Errorf("%T of version %v, want %v", o, o.Header().Version, c.want)
				}
			}
			all.close()
			a.BeginClose(func() {})
		})
	}
	t.Run("NDK-VER-05 a consumer of 1.0", func(t *testing.T) {
		w := newWorld(t)
		for i, h := range w.hosts {
			w.reequip(i, must(h.device.OpenAdapter(provider.OpenParameters{Version: version{1, 0}})))
		}
		client, server := w.connect()
		w.want(server.qp.Receive("r", server.at(0, 100)), success)
		w.want(client.qp.Send("s", client.at(0, 100), 0), success)
		w.want(client.qp.Read("rd", client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
		got := client.results(2)
		if got[0].RequestContext != "s" || got[1].RequestContext != "rd" || server.results(1)[0].BytesTransferred != 100 {
			t.Errorf("got %+v", got)
		}
		w.finish(client.disconnect())
		w.disconnects(0, 1)
		w.rejoin()
		w.finish(server.disconnect())
		w.disconnects(1, 0)
	})
	t.Run("NDK-VER-05 what came with 2.1", func(t *testing.T) {
		w := newWorld(t)
		w.reequip(0, must(w.hosts[0].device.OpenAdapter(provider.OpenParameters{Version: version{1, 2}})))
		old, present := w.hosts[0], w.hosts[1]
		a := &async{}
		for _, d := range []struct{ from, to *host }{{old, present}, {present, old}} {
			var delivered *provider.Connector
			l := d.to.listen(func(c *provider.Connector) { delivered = c })
			c := d.from.newConnector()
			connect := d.from.dial(c, d.to)
			w.settle()
			if d.to == old {
				w.want(delivered.AcceptEx(d.to.qp, 1, 1, nil, nil, nil, a.done, a), provider.StatusNotSupported)
			}
			d.to.accept(delivered)
			w.want(w.finish(connect), success)
			if d.from == old {
				w.want(c.CompleteConnectEx(nil, nil, a.done, a), provider.StatusNotSupported)
			}
			d.from.conn = c
			w.want(d.from.complete(), success)
			w.settle()
			for _, h := range []*host{d.from, d.to} {
				h.close(h.conn)
				h.close(h.qp)
				h.qp = h.newQP()
			}
			d.to.close(l)
		}
		if a.calls > 0 {
			t.Error("a call that failed has called back")
		}
	})
	t.Run("NDK-VER-08 two instances", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		second := must(client.device.OpenAdapter(anyVersion))
		other := w.equipOn(client.device, second, client.address)
		other.port = 7001
		server2 := *server
		server2.qp, server2.port = server.newQP(), 7002
		w.join(other, &server2)
		for len(*other.open) > 0 {
			other.close((*other.open)[0])
		}
		ended := false
		second.BeginClose(func() { ended = true })
		w.settle()
		if !ended {
			t.Fatal("an instance waits for another's objects")
		}
		server.receive(1)
		w.want(client.qp.Send(nil, nil, 0), success)
		client.result(success)
		server.result(success)
	})
	t.Run("NDK-VER-07 too many instances", func(t *testing.T) {
		w := newWorld(t)
		device := w.hosts[0].device
		var open []*provider.Adapter
		for range provider.MaxInstances - 1 {
			open = append(open, must(device.OpenAdapter(anyVersion)))
		}
		a, status := device.OpenAdapter(anyVersion)
		if status != provider.StatusInsufficientResources || a != nil {
			t.Errorf("got %v, %v", a, status)
		}
		for _, a := range open {
			a.BeginClose(func() {})
		}
		must(device.OpenAdapter(anyVersion)).BeginClose(func() {})
	})
	t.Run("a device that is ending", func(t *testing.T) {
		w := newWorld(t)
		device := w.hosts[0].device
		ended := false
		device.BeginClose(func() { ended = true })
		_, status := device.OpenAdapter(anyVersion)
		w.want(status, provider.StatusAdapterNotReady)
		w.hosts[0].BeginClose(func() {})
		for len(*w.hosts[0].open) > 0 {
			w.hosts[0].close((*w.hosts[0].open)[0])
		}
		w.wait("the device's end", func() bool { return ended })
		w.reopen(w.hosts[0])
	})
}

// An object has the methods of provider.Object that an adapter has, too.
type object interface {
	Header() *provider.Header
	Type() provider.ObjectType
	Version() provider.Version
	QueryExtension(provider.GUID, provider.Version, *provider.ExtensionInterface) provider.Status
}

// objects are one of each kind, on one instance.
type objects struct {
	h   *host
	all []closer
}

func newObjects(w *world, h *host, a *provider.Adapter) *objects {
	pd := must(a.CreatePD(nil, nil))
	cq := must(a.CreateCQ(1, nil, nil, nil, nil, nil))
	o := &objects{h, []closer{
		pd, cq,
		must(pd.CreateMR(false, nil, nil)),
		must(pd.CreateQP(cq, cq, nil, 1, 1, 1, 1, 0, nil, nil)),
		must(pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)),
		must(pd.CreateMW(nil, nil)),
		must(a.CreateSharedEndpoint(h.ephemeral(), nil, nil)),
		must(a.CreateConnector(nil, nil)),
		must(a.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)),
	}}
	for _, c := range o.all {
		track(h, c)
	}
	return o
}

func (o *objects) list() (list []object) {
	for _, c := range o.all {
		list = append(list, c.(object))
	}
	return list
}

func (o *objects) close() {
	for _, c := range o.all {
		o.h.close(c)
	}
}

// tables are the members of the dispatch tables (ndkpi.md 3.2), in Go's names.
var tables = map[provider.ObjectType][]string{
	provider.ObjectTypeAdapter: {"QueryExtension", "QueryAdapterInfo", "CreateCQ", "CreatePD", "CreateSharedEndpoint",
		"CreateConnector", "CreateListener", "BuildLAM", "ReleaseLAM"},
	provider.ObjectTypeCQ: {"Close", "QueryExtension", "Resize", "Arm", "Results", "ControlInterruptModeration", "ResultsEx"},
	provider.ObjectTypePD: {"Close", "QueryExtension", "CreateMR", "CreateMW", "CreateSRQ", "CreateQP", "CreateQPWithSRQ",
		"PrivilegedMemoryRegionToken"},
	provider.ObjectTypeMR: {"Close", "QueryExtension", "Register", "Deregister", "InitializeFastRegister", "RemoteToken", "LocalToken"},
	provider.ObjectTypeMW: {"Close", "QueryExtension", "RemoteToken"},
	provider.ObjectTypeQP: {"Close", "QueryExtension", "Flush", "Send", "Receive", "Bind", "FastRegister", "Invalidate",
		"Read", "Write", "SendAndInvalidate"},
	provider.ObjectTypeSRQ: {"Close", "QueryExtension", "Modify", "Receive"},
	provider.ObjectTypeConnector: {"Close", "QueryExtension", "Connect", "ConnectWithSharedEndpoint", "CompleteConnect", "Accept",
		"Reject", "GetConnectionData", "GetLocalAddress", "GetPeerAddress", "Disconnect", "CompleteConnectEx", "AcceptEx"},
	provider.ObjectTypeListener:       {"Close", "QueryExtension", "Listen", "GetLocalAddress", "ControlConnectEvents"},
	provider.ObjectTypeSharedEndpoint: {"Close", "QueryExtension", "GetLocalAddress"},
}

// dispatch is an object's field Dispatch.
func dispatch(o any) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName("Dispatch") }

func TestHeaders(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	all := append(newObjects(w, h, h.Adapter).list(), h.Adapter)
	var delivered *provider.Connector // by a listener, not made by the consumer
	h.listen(func(c *provider.Connector) { delivered = c })
	w.hosts[1].dial(w.hosts[1].newConnector(), h)
	w.settle()
	all = append(all, delivered)
	t.Run("NDK-VER-09 dispatch tables", func(t *testing.T) {
		seen := map[provider.ObjectType]bool{}
		for _, o := range all {
			seen[o.Type()] = true
			table := dispatch(o)
			if table.IsNil() || table.Interface() != any(o) {
				t.Errorf("%T has the table %v", o, table)
				continue
			}
			var members []string
			for i := range table.Type().NumMethod() {
				members = append(members, table.Type().Method(i).Name)
			}
			want := slices.Sorted(slices.Values(tables[o.Type()]))
			if !slices.Equal(members, want) {
				t.Errorf("%T's table has %v, want %v", o, members, want)
			}
		}
		if len(seen) != len(tables) {
			t.Errorf("%d kinds of objects, want %d", len(seen), len(tables))
		}
	})
	t.Run("NDK-VER-10 types and reserved blocks", func(t *testing.T) {
		types := map[string]provider.ObjectType{
			"Adapter": 1, "QP": 2, "CQ": 3, "MR": 4, "MW": 5, "PD": 6, "SharedEndpoint": 7, "Connector": 8, "Listener": 9, "SRQ": 10,
		}
		for _, o := range all {
			name := reflect.TypeOf(o).Elem().Name()
			if header := o.Header(); header.ObjectType != types[name] || o.Type() != types[name] || header.Reserved != [4]any{} {
				t.Errorf("%s has the header %+v", name, header)
			}
		}
	})
	t.Run("NDK-VER-13 extensions", func(t *testing.T) {
		for _, o := range all {
			extension := provider.ExtensionInterface{Dispatch: o}
			w.want(o.QueryExtension(provider.GUID{1, 2, 3}, provider.InterfaceVersion, &extension), provider.StatusNotSupported)
			if extension.Dispatch != o {
				t.Error("written in spite of the failure")
			}
		}
	})
}

// TestTheConsumersFields: what the consumer may write to in an object does not
// matter to the provider, and stays.
func TestTheConsumersFields(t *testing.T) {
	t.Run("NDK-VER-11 NDK-VER-12 reserved block and dispatch", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		marks := map[object]*int{}
		take := func(o object) {
			marks[o] = new(int)
			o.Header().Reserved = [4]any{marks[o], marks[o], marks[o], marks[o]}
			dispatch(o).SetZero()
		}
		take(client.Adapter)
		take(server.Adapter)
		w.reequip(0, client.Adapter)
		w.reequip(1, server.Adapter)
		client, server = w.hosts[0], w.hosts[1]
		for _, h := range w.hosts {
			for _, o := range *h.open {
				take(o.(object))
			}
		}
		accepted := &async{}
		server.listen(func(c *provider.Connector) {
			take(c)
			accepted = server.accept(c)
		})
		take(server.listener)
		client.conn = client.newConnector()
		take(client.conn)
		w.want(w.finish(client.dial(client.conn, server)), success)
		w.want(client.complete(), success)
		w.want(w.finish(accepted), success)
		server.receive(1)
		client.cq.Arm(provider.NotifyAny)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.want(client.qp.Write(nil, client.at(0, 10), base, server.mr.RemoteToken(), 0), success)
		w.want(client.qp.Read(nil, client.at(0, 10), base, server.mr.RemoteToken(), 0), success)
		client.results(3)
		server.result(success)
		w.want(w.finish(client.disconnect()), success)
		w.settle()
		if client.notes == nil || len(client.notes.statuses) != 1 || server.disconnected != 1 {
			t.Error("callbacks are missing")
		}
		for o, mark := range marks {
			if o.Header().Reserved != [4]any{mark, mark, mark, mark} || !dispatch(o).IsNil() {
				t.Errorf("%T: %+v, dispatch %v", o, o.Header(), dispatch(o))
			}
		}
	})
	t.Run("NDK-VER-12 a consumer that stands in between", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		between := &interposer{QPDispatch: client.qp.Dispatch}
		client.qp.Dispatch = between
		server.receive(2)
		w.want(client.qp.Dispatch.Send(nil, nil, 0), success)
		w.want(client.qp.Send(nil, nil, 0), success) // the original
		client.results(2)
		server.results(2)
		if between.sends != 1 {
			t.Errorf("%d sends went through the table, want 1", between.sends)
		}
	})
}

// An interposer counts a consumer's sends.
type interposer struct {
	provider.QPDispatch
	sends int
}

func (i *interposer) Send(context any, sgl []provider.SGE, flags provider.OpFlags) provider.Status {
	i.sends++
	return i.QPDispatch.Send(context, sgl, flags)
}
