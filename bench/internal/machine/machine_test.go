package machine

import (
	"strings"
	"testing"
)

func TestLook(t *testing.T) {
	f := Look()
	if !strings.HasPrefix(f.Kernel, "Linux ") || f.Cores < 1 || !strings.HasPrefix(f.Go, "go") || f.Load == "" {
		t.Errorf("%+v", f)
	}
}

// Measure finds a time to wake a thread, and a share between 0 and 1.
func TestMeasure(t *testing.T) {
	p, err := Measure()
	if err != nil {
		t.Fatal(err)
	}
	if p.Wake <= 0 || p.Away < 0 || p.Away > 1 {
		t.Error(p)
	}
}
