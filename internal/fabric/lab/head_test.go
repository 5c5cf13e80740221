package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ndklab/ndklab/internal/hosts"
)

// TestEachOf: as many hosts as told are asked at the same time and no more, one that is lost is left out, and an error has
// the name of its host.
func TestEachOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h head
		for i := range 7 {
			h.parts = append(h.parts, &farPart{Host: &hosts.Host{Name: fmt.Sprintf("host%d", i)}, lost: make(chan struct{})})
		}
		close(h.parts[2].lost)
		const width = 3
		var mu sync.Mutex
		asked := map[string]bool{}
		release, over := make(chan struct{}), make(chan error)
		go func() {
			over <- h.eachOf(t.Context(), width, h.parts, func(_ context.Context, p *farPart) error {
				mu.Lock()
				asked[p.Name] = true
				mu.Unlock()
				<-release
				return nil
			})
		}()
		synctest.Wait() // until all that may ask do
		if len(asked) != width {
			t.Errorf("asked %v at the same time, want %d", asked, width)
		}
		close(release)
		if err := <-over; err != nil || len(asked) != len(h.parts)-1 || asked["host2"] {
			t.Errorf("asked %v, %v", asked, err)
		}
		err := h.each(t.Context(), h.parts[:1], func(context.Context, *farPart) error { return errors.New("busy") })
		if err == nil || err.Error() != "host host0: busy" {
			t.Errorf("got %v", err)
		}
	})
}
