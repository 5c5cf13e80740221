// Package exporter exposes the metrics of a lab to Prometheus: by HTTP, or as a text. Package metrics says
// what they are.
//
// Start reading at Expose.
package exporter

import (
	"context"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/confine"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/metrics"
	"github.com/ndklab/ndklab/internal/fabric/monitor"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Expose writes the metrics of a lab to standard output, or serves them until the lab or ctx ends.
func Expose(ctx context.Context, params monitor.Metrics) error {
	l, err := lab.Open(ctx, params.Lab)
	if err != nil {
		return err
	}
	defer l.Close()
	if params.Once {
		return write(ctx, l)
	}
	if err := confine.Process(); err != nil { // since others than the lab's user may ask
		return err
	}
	ended, err := newServer(params.Lab, func(ctx context.Context) ([]*dto.MetricFamily, error) { return gather(ctx, l) }).serve(ctx, params.Listen, os.Stdout, l.Done())
	if err != nil || !ended {
		return err
	}
	return l.End()
}

// gather returns the metrics of a lab.
func gather(ctx context.Context, l *lab.Lab) ([]*dto.MetricFamily, error) {
	began := time.Now()
	o, err := l.Observe(ctx, metrics.Bounds())
	if err != nil {
		return nil, err
	}
	return metrics.Families(o, time.Since(began)), nil
}

// write writes the metrics of a lab to standard output in the text format, which is what node_exporter
// takes from files.
func write(ctx context.Context, l *lab.Lab) error {
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	families, err := gather(ctx, l)
	if err != nil {
		return err
	}
	encoder := expfmt.NewEncoder(os.Stdout, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return control.Errorf(control.Unable, "the output cannot be written: %v", err)
		}
	}
	return nil
}
