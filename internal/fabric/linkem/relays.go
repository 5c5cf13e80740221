package linkem

import (
	"context"
	"fmt"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/relay"
)

// relays are the relays of the process. The loop has nothing to do with them.
type relays struct {
	mu   sync.Mutex // guards open
	open map[string]*relay.Relay
}

// serve opens a relay. Its files stay open with it.
func (all *relays) serve(_ context.Context, r *control.Request, iface string) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open[iface] != nil {
		return control.Errorf(control.Usage, "the engine has a relay of %s already", iface)
	}
	opened, err := relay.Open(iface, r.Files[0], r.Files[1])
	if err != nil {
		return err
	}
	clear(r.Files)
	if all.open == nil {
		all.open = map[string]*relay.Relay{}
	}
	all.open[iface] = opened
	return nil
}

// counts returns what every relay has counted, by its interface.
func (all *relays) counts(context.Context, *control.Request, control.None) (map[string]relay.Counts, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	counts := make(map[string]relay.Counts, len(all.open))
	for iface, r := range all.open {
		var err error
		if counts[iface], err = r.Counts(); err != nil {
			return nil, fmt.Errorf("relay of %s: %w", iface, err)
		}
	}
	return counts, nil
}
