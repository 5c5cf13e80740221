package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/internal/hosts"
)

// TestEachOf: as many hosts as told are asked at the same time and no more, one that is lost is left out, and an error has
// the name of its host.
func TestEachOf(t *testing.T) {
	var h head
	for i := range 7 {
		h.parts = append(h.parts, &farPart{Host: &hosts.Host{Name: fmt.Sprintf("host%d", i)}, lost: make(chan struct{})})
	}
	close(h.parts[2].lost)
	const width = 3
	var mu sync.Mutex
	var now, most int
	asked := map[string]bool{}
	together := make(chan struct{}) // closed when as many as told have been there
	err := h.eachOf(t.Context(), width, h.parts, func(_ context.Context, p *farPart) error {
		mu.Lock()
		now, asked[p.Name] = now+1, true
		if now > most {
			if most = now; most == width {
				close(together)
			}
		}
		mu.Unlock()
		<-together
		mu.Lock()
		now--
		mu.Unlock()
		return nil
	})
	if err != nil || most != width || len(asked) != len(h.parts)-1 || asked["host2"] {
		t.Errorf("asked %v, at most %d at the same time, %v", asked, most, err)
	}
	err = h.each(t.Context(), h.parts[:1], func(context.Context, *farPart) error { return errors.New("busy") })
	if err == nil || err.Error() != "host host0: busy" {
		t.Errorf("got %v", err)
	}
}
