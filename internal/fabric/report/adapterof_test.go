package report

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
)

// TestEveryLimitIsReported gives each limit a value of its own.
func TestEveryLimitIsReported(t *testing.T) {
	var a adapter.State
	distinct(reflect.ValueOf(&a).Elem(), new(uint64))
	got := AdapterOf(&a)
	same(t, reflect.ValueOf(a.Info), reflect.ValueOf(got.Info), "Version", "AdapterFlags", "RdmaTechnology")
	same(t, reflect.ValueOf(a.Capabilities), reflect.ValueOf(got.Capabilities))
	same(t, reflect.ValueOf(a.Configuration), reflect.ValueOf(got.Configuration))
	same(t, reflect.ValueOf(a.ReceiveBuffer), reflect.ValueOf(got.ReceiveBuffer))
	if v := a.Info.Version; got.Info.Version != fmt.Sprintf("%d.%d", v.Major, v.Minor) || got.Capabilities.MissingCounterMask != a.MissingMask {
		t.Errorf("version %s, mask %d", got.Info.Version, got.Capabilities.MissingCounterMask)
	}
	u := a.Usage
	if got.Instances != u.Instances || got.InUse != (InUse{Qp: u.Qps, Cq: u.Cqs, Mr: u.Mrs, Pd: u.Pds, Mw: u.Mws, Srq: u.Srqs,
		InboundRead: u.InboundReads, OutboundRead: u.OutboundReads}) {
		t.Errorf("in use: %+v of %+v", got.InUse, u)
	}
	for i, flag := range []provider.AdapterFlags{0x1, 0x2, 0x4, 0x8, 0x10, 0x100, 0x10000} { // ndkpi.md 2.7
		info := adapterInfo(&provider.AdapterInfo{AdapterFlags: flag, RdmaTechnology: provider.RoCEv2})
		if !slices.Equal(info.AdapterFlags, AdapterFlags[i:i+1]) || info.RdmaTechnology != "NdkRoCEv2" {
			t.Errorf("flag %#x: %+v", flag, info)
		}
	}
}

// distinct gives every number in v a value of its own.
func distinct(v reflect.Value, last *uint64) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				distinct(v.Field(i), last)
			}
		}
	case v.CanUint():
		*last++
		v.SetUint(*last)
	case v.CanInt():
		*last++
		v.SetInt(int64(*last))
	}
}

// same compares the fields of two structures by name.
func same(t *testing.T, want, got reflect.Value, but ...string) {
	t.Helper()
	for i := range want.NumField() {
		name := want.Type().Field(i).Name
		if slices.Contains(but, name) {
			continue
		}
		field := got.FieldByName(name)
		if !field.IsValid() || fmt.Sprint(field) != fmt.Sprint(want.Field(i)) {
			t.Errorf("%s is %v, want %v", name, field, want.Field(i))
		}
	}
}
