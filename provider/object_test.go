package provider

import (
	"testing"
	"unsafe"
)

// TestSizes: with more the runtime takes bytes of the next size that it has, for each idle connection; 8 it adds itself.
func TestSizes(t *testing.T) {
	if size := unsafe.Sizeof(QP{}); size > 696 {
		t.Errorf("a QP is %d bytes, which may be 696", size)
	}
	if size := unsafe.Sizeof(Connector{}); size > 448 {
		t.Errorf("a Connector is %d bytes, which may be 448", size)
	}
}
