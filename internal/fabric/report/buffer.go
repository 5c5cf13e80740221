package report

import (
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/series"
)

// The figures of buffers, and their course over time, are those of the packages that take them down.
type (
	Buffer      = bufferstats.Buffer
	BufferPort  = bufferstats.Port
	BufferClass = bufferstats.Class
	QueueLength = bufferstats.QueueLength
	Deadlock    = bufferstats.Deadlock
	Series      = series.Series
	QueueSeries = series.QueueSeries
	PairSeries  = series.PairSeries

	DirectionSeries = series.DirectionSeries
)
