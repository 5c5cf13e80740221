package linkem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
)

const (
	// recordBatch bounds the decisions in each of the two batches that may wait to be
	// written: some 12 MiB together.
	recordBatch = 1 << 15
	// recordChunk is about how much is written at once, bytes.
	recordChunk = 256 << 10
	// flushTime bounds the time that an ending engine takes to write the rest.
	flushTime = 2 * time.Second
	// maxLog bounds a log that is replayed, bytes: some five million decisions,
	// which take 350 MB of memory.
	maxLog = 1 << 30
)

// A recorder writes the decisions on all links to a file.
type recorder struct {
	spool *spool[impair.Record]

	mu     sync.Mutex // guards what follows, and is held while writing
	file   *os.File
	text   []byte
	status Recorded
}

// record begins to record.
func (s *service) record(_ context.Context, r *control.Request, seed uint64) error {
	rec := &recorder{spool: newSpool[impair.Record](recordBatch), file: r.Files[0]}
	set := func(from, to *recorder) error {
		return s.commands.do(func() error {
			if s.ingress.recorder != from {
				return control.Errorf(control.Usage, "the engine is recording already")
			}
			s.ingress.recorder = to
			return nil
		})
	}
	if err := set(nil, rec); err != nil {
		return err
	}
	if _, err := rec.file.Write(impair.AppendHeader(nil, seed)); err != nil {
		return errors.Join(control.Errorf(control.Unable, "%v", withoutName(err)), set(rec, nil))
	}
	r.Files[0] = nil // it is ours from now on, for as long as the process lives
	go func() {
		_ = rec.spool.run(context.Background(), rec.write) // write never fails
	}()
	return nil
}

// write writes a batch, or counts what cannot be written. It returns nil.
func (r *recorder) write(b *batch[impair.Record]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	chunk := uint64(0)
	for i := range b.items {
		r.text = b.items[i].Append(r.text)
		chunk++
		if len(r.text) >= recordChunk {
			r.flush(chunk)
			chunk = 0
		}
	}
	if b.missed > 0 {
		r.text = impair.AppendMissing(r.text, b.missed)
		r.status.Missing += b.missed
	}
	r.flush(chunk)
	return nil
}

// flush writes the text of so many records. After a failure the file may end
// amid a line, so that nothing more is written.
func (r *recorder) flush(records uint64) {
	if r.status.Error == "" {
		if _, err := r.file.Write(r.text); err != nil {
			r.status.Error = withoutName(err).Error()
		}
	}
	if r.status.Error == "" {
		r.status.Records += records
	} else {
		r.status.Missing += records
	}
	r.text = r.text[:0]
}

// withoutName returns an error without the name of a file, which is not known here.
func withoutName(err error) error {
	var in *fs.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

// recorded writes what was decided until now and returns how recording went.
func (s *service) recorded(context.Context, *control.Request, control.None) (Recorded, error) {
	var rec *recorder
	if err := s.commands.do(func() error { rec = s.ingress.recorder; return nil }); err != nil {
		return Recorded{}, err
	}
	if rec == nil {
		return Recorded{}, control.Errorf(control.Usage, "the engine is not recording")
	}
	return rec.flushed(), nil
}

// flushed writes what was decided until now.
func (r *recorder) flushed() Recorded {
	_ = r.spool.pass(r.write) // never fails
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// end writes what there still is, unless that takes too long.
func (r *recorder) end() {
	done := make(chan struct{})
	go func() {
		r.flushed()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(flushTime):
	}
}

// replay reads a log, has the links replay it, and returns what is in it.
func (s *service) replay(_ context.Context, r *control.Request, _ control.None) (Log, error) {
	log, err := impair.ReadLog(&limited{r.Files[0], maxLog})
	if err != nil {
		return Log{}, control.Errorf(control.Usage, "%v", err)
	}
	return Log{Links: log.Links(), Missing: log.Missing, CutShort: log.CutShort}, s.commands.do(func() error { return s.links.replay(log) })
}

// limited reads so many bytes and fails then, if there are more.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		if n, err := l.r.Read(b[:1]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("a log of more than %d bytes", maxLog)
	}
	n, err := l.r.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}
