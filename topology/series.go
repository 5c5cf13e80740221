package topology

import (
	"time"

	"gopkg.in/yaml.v3"
)

// A Series says how often a run takes down, for its report, how long queues are and how long they were paused, how queue pairs
// send and what links lose.
type Series struct {
	Period time.Duration
	Place  Place // in its file
}

var seriesForm = func() form[*Series] {
	period := span(10*time.Microsecond, time.Second)
	f := form[*Series]{schema: period.schema, ranges: period.ranges}
	f.read = func(r *reader, n *yaml.Node) *Series {
		v := period.of(r, n)
		if !v.ok {
			return nil
		}
		return &Series{v.is, r.place(v.at)}
	}
	return f
}()
