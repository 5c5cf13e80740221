package ucm

import (
	"encoding/binary"
	"reflect"
	"testing"
)

// TestSizes compares the structures with those that a C compiler makes of rdma/rdma_user_cm.h of rdma-core 44.
func TestSizes(t *testing.T) {
	for _, s := range []struct {
		of   any
		size int
	}{
		{header{}, 8}, {createID{}, 24}, {idResponse{}, 4}, {destroyID{}, 16}, {eventsResponse{}, 4}, {bindIP{}, 40},
		{bind{}, 136}, {resolveIP{}, 64}, {resolveAddr{}, 272}, {resolveRoute{}, 8}, {query{}, 16}, {pathRecord{}, 64},
		{routeResponse{}, 208}, {addrResponse{}, 280}, {pathResponse{}, 8}, {pathData{}, 72}, {connParam{}, 272},
		{udParam{}, 304}, {connect{}, connectECE}, {listen{}, 8}, {accept{}, acceptECE}, {reject{}, 264}, {disconnect{}, 4},
		{initQPAttr{}, 16}, {notify{}, 8}, {joinIPMulticast{}, 48}, {joinMulticast{}, 152}, {getEvent{}, 8},
		{eventResponse{}, EventSize}, {setOption{}, 24}, {migrateID{}, 16}, {ahAttr{}, 32}, {qpAttr{}, 144},
	} {
		if got := binary.Size(s.of); got != s.size {
			t.Errorf("%T has %d bytes, not %d", s.of, got, s.size)
		}
	}
}

// TestOffsets looks for a few fields where the C compiler has them.
func TestOffsets(t *testing.T) {
	for _, s := range []struct {
		of    any
		field string
		at    int
	}{
		{bindIP{}, "ID", 36}, {bind{}, "Address", 8}, {resolveIP{}, "ID", 56}, {resolveAddr{}, "Source", 16},
		{resolveAddr{}, "Destination", 144}, {routeResponse{}, "Source", 136}, {routeResponse{}, "Paths", 192},
		{routeResponse{}, "Port", 196}, {routeResponse{}, "DeviceIndex", routeResponseLeast}, {addrResponse{}, "Source", 16},
		{addrResponse{}, "Destination", 144}, {addrResponse{}, "DeviceIndex", addrResponseLeast}, {connect{}, "ID", 272},
		{accept{}, "ID", 280}, {joinIPMulticast{}, "ID", 44}, {joinMulticast{}, "Address", 24}, {eventResponse{}, "Param", 20},
		{eventResponse{}, "ECE", eventLeast + 4}, {qpAttr{}, "AH", 40}, {qpAttr{}, "AlternateAH", 72}, {qpAttr{}, "PKeyIndex", 124},
		{qpAttr{}, "MaxReadAtomic", 130}, {pathRecord{}, "DLID", 32}, {pathRecord{}, "FlowLabel", 40}, {pathRecord{}, "MTU", 48},
		{pathRecord{}, "PKey", 52}, {pathRecord{}, "Preference", 63}, {udParam{}, "AH", 8},
	} {
		if got := offset(s.of, s.field); got != s.at {
			t.Errorf("%T.%s is at %d, not %d", s.of, s.field, got, s.at)
		}
	}
}

// offset returns the number of bytes before a field.
func offset(of any, field string) (n int) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if v.Type().Field(i).Name == field {
			return n
		}
		n += binary.Size(reflect.Zero(v.Field(i).Type()).Interface())
	}
	return -1
}
