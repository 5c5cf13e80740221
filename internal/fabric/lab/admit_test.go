package lab

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"golang.org/x/sys/unix"
)

// A device is a node's adapter that a test has opened, with a queue pair.
type device struct {
	port    *provider.Miniport
	adapter *provider.Adapter
	qp      *provider.QP
}

func openDevice(t *testing.T, l *Lab, node string) device {
	t.Helper()
	port, abandon, err := l.Nodes.OpenDevice(testContext(t), node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(abandon)
	a, status := port.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	cq, err := await.NewCQ(a, 16)
	if err != nil {
		t.Fatal(err)
	}
	pd, status := a.CreatePD(nil, nil)
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	qp, status := pd.CreateQP(cq.CQ, cq.CQ, nil, 8, 8, 1, 1, 64, nil, nil)
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	return device{port, a, qp}
}

// A program at another machine than a node's is told where it can have the node's adapter.
func TestOpenDeviceElsewhere(t *testing.T) {
	l := startWith(t, ring(uniqueName(t), 2), Options{Hosts: twoHosts})
	openDevice(t, l, "n1")
	var at admission
	params := admitParams{"n1"}
	a, b, err := streamPair("device")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	if at, err = methodAdmit.Call(testContext(t), l.conn, params, b); err != nil {
		t.Fatal(err)
	}
	if at.Host != "host2" || at.Lab != l.Info().Lab {
		t.Errorf("%+v", at)
	}
	err = at.enter(testContext(t), params, b)
	if err != nil {
		t.Error(err)
	}
	at.Socket += "-of-another" // as one that nobody has here
	err = at.enter(testContext(t), params, b)
	wantCode(t, err, control.Unable)
	want := "run the program there by `ndklab exec " + at.Lab + "/n1 -- PROGRAM`, or have the node on this machine by `host:`"
	if err == nil || !strings.HasPrefix(err.Error(), "node n1 is at host host2") || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A program outside the lab connects nodes by their own adapters, whoever its user is.
func TestOpenDevice(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	ctx := testContext(t)
	client, server := openDevice(t, l, "n0"), openDevice(t, l, "n1")
	listener, err := await.Listen(ctx, server.adapter, netip.MustParseAddrPort("10.0.0.2:7471"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := listener.Next(ctx)
		if err == nil {
			err = await.Accept(ctx, c, server.qp, await.Options{})
		}
		accepted <- err
	}()
	c, err := await.Dial(ctx, client.adapter, client.qp, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddrPort("10.0.0.2:7471"), await.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	inspection, err := l.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, counter := range []string{"Connect", "Accept"} {
		if got := inspection.Nodes[i].Counters[counter]; got != 1 {
			t.Errorf("node %s counts %s %d times, want once", inspection.Nodes[i].Name, counter, got)
		}
	}
	disabled := make(chan provider.NetEventCode, 1)
	defer client.port.Subscribe(func(e provider.NetEvent) { disabled <- e.Code })()
	if _, err := l.Nodes.Kill(ctx, "n0", unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := <-disabled; code != provider.NetEventNDKDisable || !client.port.Failed() {
		t.Errorf("the device of a node that is down has not failed, but event %v", code)
	}
	if err := await.Close(ctx, c); err != nil {
		t.Error(err)
	}

	// A request for an adapter that does not exist says so.
	_, _, err = l.Nodes.OpenDevice(testContext(t), "n7")
	wantCode(t, err, control.Usage)
	if _, err := l.Nodes.Change(testContext(t), "n1", StopNode); err != nil {
		t.Fatal(err)
	}
	_, _, err = l.Nodes.OpenDevice(testContext(t), "n1")
	wantCode(t, err, control.Usage)
	if err == nil || !strings.Contains(err.Error(), "is down") {
		t.Errorf("of a node that is down: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Nodes.OpenDevice(testContext(t), "n0"); !errors.Is(err, control.ErrClosed) {
		t.Errorf("of a lab that is over: %v", err)
	}
}
