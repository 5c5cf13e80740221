// Command ndklab-monitor looks at a lab that goes on. It is no command for people: `ndklab metrics` and others start
// it, and package monitor says why it is a program of its own.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/ndklab/ndklab/internal/fabric/exporter"
	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/ndklab/ndklab/internal/fabric/top"
	"github.com/ndklab/ndklab/internal/fabric/ui"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(monitor.Main(version, show)) }

func show(ctx context.Context, params monitor.Params) error {
	switch {
	case params.Metrics != nil:
		return exporter.Expose(ctx, *params.Metrics)
	case params.Top != nil:
		return top.Show(ctx, *params.Top)
	case params.UI != nil:
		return ui.Show(ctx, *params.UI)
	}
	return errors.New("there is nothing to be shown")
}
