package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// This file is the JSON form of an adapter's limits: that of `ndklab adapter -o json`, and that
// of agents. Other fields than those here are numbers under their names.

// AdapterFlagNames are the names of all flags (ndkpi.md 2.7), by ascending value.
var AdapterFlagNames = []struct {
	Flag AdapterFlags
	Name string
}{
	{AdapterInOrderDMA, "NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED"},
	{AdapterReadSinkNotRequired, "NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED"},
	{AdapterCQInterruptModeration, "NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED"},
	{AdapterMultiEngine, "NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED"},
	{AdapterReadLocalInvalidate, "NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED"},
	{AdapterCQResize, "NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED"},
	{AdapterLoopbackConnections, "NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED"},
}

// MarshalJSON implements json.Marshaler: the names of the flags that are set.
func (f AdapterFlags) MarshalJSON() ([]byte, error) {
	names := []string{}
	for _, n := range AdapterFlagNames {
		if f&n.Flag != 0 {
			names = append(names, n.Name)
		}
	}
	return json.Marshal(names)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *AdapterFlags) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return err
	}
	*f = 0
	for _, n := range AdapterFlagNames {
		if slices.Contains(names, n.Name) {
			*f |= n.Flag
		}
	}
	return nil
}

// String implements fmt.Stringer.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// MarshalText implements encoding.TextMarshaler.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Version) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d.%d", &v.Major, &v.Minor)
	return err
}

// String implements fmt.Stringer: NDK's name.
func (t RDMATechnology) String() string {
	if t == RoCEv2 {
		return "NdkRoCEv2"
	}
	return strconv.Itoa(int(t))
}

// MarshalJSON implements json.Marshaler. The technology is a name here, and a number in
// Configuration.
func (i AdapterInfo) MarshalJSON() ([]byte, error) {
	type fields AdapterInfo // without this method
	return json.Marshal(struct {
		fields
		RdmaTechnology string
	}{fields(i), i.RdmaTechnology.String()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *AdapterInfo) UnmarshalJSON(data []byte) error {
	type fields AdapterInfo // without this method
	in := struct {
		*fields
		RdmaTechnology string
	}{fields: (*fields)(i)}
	err := json.Unmarshal(data, &in)
	if i.RdmaTechnology = 0; in.RdmaTechnology == RoCEv2.String() {
		i.RdmaTechnology = RoCEv2
	}
	return err
}
