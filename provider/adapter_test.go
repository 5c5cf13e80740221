package provider_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

func TestOpen(t *testing.T) {
	c := clock.NewVirtual()
	network := sim.NewNetwork(c, &sim.Impaired{})
	good := provider.Config{Carrier: network.Attach(mtu, addresses[0]), Clock: c,
		Rand: rand.New(rand.NewPCG(1, 1)), Info: provider.DefaultAdapterInfo(),
		Capabilities: provider.DefaultCapabilities()}
	m, err := provider.NewMiniport(good)
	if err != nil {
		t.Fatal(err)
	}
	a := must(m.OpenAdapter(anyVersion))
	info := a.Info()
	if info != good.Info {
		t.Errorf("got %+v", info)
	}
	// NDK-INFO-03, and ndkpi.md T58.
	if info.FRMRPageCount < 16 || info.MaxReadRequestSge > info.MaxInitiatorRequestSge || info.RdmaTechnology != provider.RoCEv2 {
		t.Errorf("got %+v", info)
	}
	ended := false
	a.BeginClose(func() { m.BeginClose(func() { ended = true }) })
	c.Run(0)
	if !ended {
		t.Error("an adapter without objects does not close at once")
	}
	for _, remove := range []func(*provider.Config){
		func(c *provider.Config) { c.Carrier = nil },
		func(c *provider.Config) { c.Clock = nil },
		func(c *provider.Config) { c.Rand = nil },
	} {
		bad := good
		remove(&bad)
		if _, err := provider.NewMiniport(bad); err == nil {
			t.Error("opened without something that it needs")
		}
	}
	for name, value := range map[string]uint64{
		"MaxRegistrationSize": 0, "FRMRPageCount": 15, "MaxInitiatorRequestSge": 0, "MaxReceiveRequestSge": 257,
		"MaxReadRequestSge": 31, "MaxTransferLength": 1<<31 + 1, "MaxInlineDataSize": 65537, "MaxInboundReadLimit": 256,
		"MaxOutboundReadLimit": 256, "MaxReceiveQueueDepth": 0, "MaxInitiatorQueueDepth": 1<<20 + 1, "MaxCqDepth": 0,
		"MaxCallerData": 57, "MaxCalleeData": 149,
	} {
		bad := good
		reflect.ValueOf(&bad.Info).Elem().FieldByName(name).SetUint(value)
		if _, err := provider.NewMiniport(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s of %d: %v", name, value, err)
		}
	}
}

func TestStatus(t *testing.T) {
	// ndkpi.md T56: pending succeeds, warnings do not.
	for s, want := range map[provider.Status]struct {
		name      string
		succeeded bool
	}{
		success:                         {"STATUS_SUCCESS", true},
		provider.StatusPending:          {"STATUS_PENDING", true},
		overflow:                        {"STATUS_BUFFER_OVERFLOW", false},
		provider.StatusInvalidParameter: {"STATUS_INVALID_PARAMETER", false},
		0xC0DEC0DE:                      {"0xC0DEC0DE", false},
	} {
		if s.String() != want.name || s.Error() != want.name || s.Succeeded() != want.succeeded {
			t.Errorf("%v: %v, %v", s.String(), s.Error(), s.Succeeded())
		}
	}
	var err error = overflow
	if !errors.Is(err, overflow) {
		t.Error("a status cannot be compared as an error")
	}
}
