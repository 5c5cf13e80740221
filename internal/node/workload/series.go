package workload

import (
	"time"

	"github.com/ndklab/ndklab/internal/histogram"
)

// A series is the course of a client over time, in pieces of equal length from an
// instant on. Time does not go back from call to call.
type series struct {
	from   time.Duration // when the first piece began
	length time.Duration // of a piece
	most   int           // pieces, even
	done   []Sample
	now    Sample               // the piece in progress, without its place in time
	took   *histogram.Histogram // latencies of the piece in progress, nanoseconds, to two digits
}

// Bounds on the number of pieces of a series: a workload of hours must not grow without
// bound, nor must one of tens of thousands of flows, which have fewer each.
const (
	pieceLength = 100 * time.Millisecond
	mostPieces  = 2048
	leastPieces = 64
	allPieces   = 1 << 22 // of all flows of a workload, as long as each has leastPieces
)

// piecesFor returns the most pieces that a client has, of a workload with so many flows.
func piecesFor(flows int) int {
	return max(leastPieces, min(mostPieces, allPieces/max(1, flows))) &^ 1
}

func newSeries(s *Spec, now time.Duration) *series {
	return &series{from: now, length: pieceLength, most: piecesFor(s.Flows), took: histogram.New(twoDigits)}
}

// completed takes a message that has completed now.
func (s *series) completed(now time.Duration, size uint64, latency time.Duration) {
	s.advance(now)
	s.now.Messages++
	s.now.Bytes += size
	s.took.Record(counted(latency), 1)
}

// failed takes an error of now.
func (s *series) failed(now time.Duration) {
	s.advance(now)
	s.now.Errors++
}

// advance ends the pieces that are over.
func (s *series) advance(now time.Duration) {
	for now >= s.end() {
		s.add(s.length)
		if len(s.done) == s.most {
			s.halve()
		}
	}
}

// begin returns when the piece in progress began, and end when it is over.
func (s *series) begin() time.Duration { return s.from + time.Duration(len(s.done))*s.length }
func (s *series) end() time.Duration   { return s.begin() + s.length }

// add ends the piece in progress, which has the given length.
func (s *series) add(length time.Duration) {
	s.now.At, s.now.Seconds = (s.begin() - s.from).Seconds(), length.Seconds()
	if s.now.Messages > 0 {
		s.now.P50 = float64(percentileOf(s.took, 50)) / 1e3
		s.now.P99 = float64(percentileOf(s.took, 99)) / 1e3
		s.took.Clear()
	}
	s.done = append(s.done, s.now)
	s.now = Sample{}
}

// halve makes one piece of every two. The percentiles of two pieces together are not
// known any more: the median is taken to be between theirs, by their messages, and the
// high one to be the higher.
func (s *series) halve() {
	for i := range len(s.done) / 2 {
		a, b := s.done[2*i], s.done[2*i+1]
		sum := Sample{
			At: a.At, Seconds: a.Seconds + b.Seconds,
			Messages: a.Messages + b.Messages, Bytes: a.Bytes + b.Bytes, Errors: a.Errors + b.Errors,
			P99: max(a.P99, b.P99),
		}
		if sum.Messages > 0 {
			mean := (a.P50*float64(a.Messages) + b.P50*float64(b.Messages)) / float64(sum.Messages)
			sum.P50 = min(mean, sum.P99) // of two that are equal it may be a trifle more
		}
		s.done[i] = sum
	}
	s.done = s.done[:len(s.done)/2]
	s.length *= 2
}

// finish ends the series now and returns it.
func (s *series) finish(now time.Duration) []Sample {
	s.advance(now)
	if now > s.begin() || s.now != (Sample{}) {
		s.add(now - s.begin())
	}
	return s.done
}
