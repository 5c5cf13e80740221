package provider_test

import (
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// What a careless consumer does is answered by a status, or does nothing. It
// never panics, and never does harm to others.

func TestForeignCQ(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	srq := track(h, must(h.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
	for name, foreign := range map[string]*provider.CQ{
		"another device's": w.hosts[1].cq, "another instance's": w.another(h).cq,
	} {
		for _, cqs := range [][2]*provider.CQ{{foreign, h.cq}, {h.cq, foreign}} {
			_, status := h.pd.CreateQP(cqs[0], cqs[1], nil, 1, 1, 1, 1, 0, nil, nil)
			if status != provider.StatusInvalidParameter {
				t.Errorf("a QP with %s CQ: %v", name, status)
			}
			_, status = h.pd.CreateQPWithSRQ(cqs[0], cqs[1], srq, nil, 1, 1, 0, nil, nil)
			if status != provider.StatusInvalidParameter {
				t.Errorf("a QP with an SRQ and %s CQ: %v", name, status)
			}
		}
	}
}
