package provider

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestAdapterInfoJSON gives each limit a value of its own. All come through JSON, the flags and
// the technology under the names of NDK.
func TestAdapterInfoJSON(t *testing.T) {
	info := AdapterInfo{Version: Version{2, 1}, RdmaTechnology: RoCEv2}
	for i, f := range []AdapterFlags{0x1, 0x2, 0x4, 0x8, 0x10, 0x100, 0x10000} { // ndkpi.md 2.7
		if AdapterFlagNames[i].Flag != f {
			t.Errorf("flag %#x is not the one at %d of the names", f, i)
		}
		info.AdapterFlags |= f
	}
	last := uint64(0)
	for field, value := range reflect.ValueOf(&info).Elem().Fields() {
		if field.Tag.Get("unit") != "" {
			last++
			value.SetUint(last)
		}
	}
	if last != 17 {
		t.Errorf("%d limits have a unit", last)
	}
	text, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	var back AdapterInfo
	if err := json.Unmarshal(text, &back); err != nil || back != info {
		t.Errorf("%+v came back as %+v, %v", info, back, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	flags, _ := fields["AdapterFlags"].([]any)
	if len(fields) != 22 || fields["Version"] != "2.1" || fields["RdmaTechnology"] != "NdkRoCEv2" || fields["VendorId"] != 0.0 ||
		len(flags) != 7 || flags[0] != "NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED" {
		t.Errorf("%s", text)
	}
}
