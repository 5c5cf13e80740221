package linkem

import (
	"fmt"
	"sync"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/relay"
)

// The relays of the process, which the loop has nothing to do with.
type relays struct {
	mu   sync.Mutex // guards open
	open map[string]*relay.Relay
}

// serve opens one. Its directory stays open with it.
func (all *relays) serve(r *control.Request) error {
	var iface string
	if err := r.Decode(&iface); err != nil {
		return err
	}
	if len(r.Files) != 2 {
		return control.Errorf(control.Usage, "relay of %s: %d files, expected a namespace and a directory", iface, len(r.Files))
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open[iface] != nil {
		return control.Errorf(control.Usage, "the engine has a relay of %s already", iface)
	}
	opened, err := relay.Open(r.Files[0], iface, r.Files[1])
	if err != nil {
		return err
	}
	r.Files[1] = nil
	if all.open == nil {
		all.open = map[string]*relay.Relay{}
	}
	all.open[iface] = opened
	return nil
}

func (all *relays) counts() (map[string]relay.Counts, error) {
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
