package node

import (
	"context"
	"fmt"
	"os"

	"github.com/ndklab/ndklab/control"
)

// This file is how a process outside the node shares the node's adapter, as those inside
// do by themselves (package lease).

// methodAdmit is a request with a file: whose other end has a process that is to share
// the adapter.
const methodAdmit = "admit"

// Admit shares the node's adapter with the process that has the other end of a Unix
// stream socket: it calls lease.OpenOver. The file stays the caller's.
func (a *Agent) Admit(ctx context.Context, f *os.File) error {
	if err := a.conn.Call(ctx, methodAdmit, nil, nil, f); err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return nil
}

func (a *agent) admit(r *control.Request) error {
	if len(r.Files) != 1 {
		return control.Errorf(control.Usage, "%d files, expected a socket", len(r.Files))
	}
	a.mu.Lock()
	shared := a.shared
	a.mu.Unlock()
	if shared == nil {
		return errNoAdapter
	}
	return shared.Admit(r.Files[0])
}
