// Package loopback gives the tests of workloads adapters that reach each other
// through the loopback interface, in real time. It is no part of ndklab's
// programs. Start reading at Adapter.
package loopback

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
)

// Adapter returns an instance of a Device, which has nothing open when the test ends.
func Adapter(t testing.TB, net byte, pend bool) (*provider.Adapter, netip.Addr) {
	t.Helper()
	device, address := Device(t, net, pend)
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	t.Cleanup(adapter.Close)
	return adapter, address
}

// Device returns an adapter at an address of its own, 127.NET.x.y, until the test
// ends. Tests of one package that run at once, and packages among each other, need
// different nets; processes have different addresses in any case. pend is
// provider.Config's.
func Device(t testing.TB, net byte, pend bool) (*provider.Miniport, netip.Addr) {
	t.Helper()
	return DeviceBy(t, net, pend, clock.Real())
}

// DeviceBy returns a Device by another clock.
func DeviceBy(t testing.TB, net byte, pend bool, c clock.Clock) (*provider.Miniport, netip.Addr) {
	t.Helper()
	pid := os.Getpid()
	address := netip.AddrFrom4([4]byte{127, net, byte(pid >> 8), byte(pid)})
	carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{address}})
	if err != nil {
		t.Fatal(err)
	}
	device, err := provider.NewMiniport(provider.Config{
		Carrier: carrier, Clock: c, Rand: rand.New(rand.NewPCG(uint64(net), 3)),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Pend: pend,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	return device, address
}
