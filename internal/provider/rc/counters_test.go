package rc

import (
	"reflect"
	"testing"
)

// TestPlus sets every counter, so that one that is forgotten shows.
func TestPlus(t *testing.T) {
	var a, b Counters
	va, vb := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for i := range va.NumField() {
		va.Field(i).SetUint(uint64(100 + i))
		vb.Field(i).SetUint(uint64(1000 * (i + 1)))
	}
	sum := reflect.ValueOf(a.Plus(b))
	for i := range sum.NumField() {
		if got, want := sum.Field(i).Uint(), uint64(100+i+1000*(i+1)); got != want {
			t.Errorf("%s: %d, want %d", sum.Type().Field(i).Name, got, want)
		}
	}
}
