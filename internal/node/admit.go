package node

import (
	"context"
	"os"

	"github.com/ndklab/ndklab/internal/control"
)

// This file is how a process outside the node shares the node's adapter, as those inside
// do by themselves (package lease).

// methodAdmit carries a socket whose other end has a process that is to share the adapter.
var methodAdmit = control.NewProcedure[control.None]("admit").WithFiles(1, 1)

// Admit shares the node's adapter with the process that has the other end of a Unix
// stream socket: it calls lease.OpenOver. The file stays the caller's.
func (a *Agent) Admit(ctx context.Context, f *os.File) error {
	return a.named(methodAdmit.Call(ctx, a.conn, nil, f))
}

func (a *agent) admit(_ context.Context, r *control.Request, _ control.None) error {
	shared := a.sharedAdapter()
	if shared == nil {
		return errNoAdapter
	}
	return shared.Admit(r.Files[0])
}
