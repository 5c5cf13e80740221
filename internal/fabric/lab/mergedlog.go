package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A mergedLog is a log of decisions that engines at several hosts write to, each through a stream. An engine has the decisions
// on packets that enter links at its host, so that every direction of a link is in one stream, in its order. Engines do not
// wait for the file: what its streams have no room for is missing, as in a file of theirs.
type mergedLog struct {
	writing sync.Mutex // held while the file is written to
	file    *os.File

	mu       sync.Mutex // guards what follows
	changed  *sync.Cond
	came     []uint64 // records, by stream
	received uint64   // records, of all streams
	unsaved  uint64   // of those, the ones that could not be written
	over     []bool   // by stream: nothing more comes
	failure  string   // why nothing more is written; the file may end amid a line
}

// mergeChunk is from how many bytes on lines are written; a line is shorter.
const mergeChunk = 256 << 10

func newMergedLog(file *os.File, streams int) *mergedLog {
	m := &mergedLog{file: file, came: make([]uint64, streams), over: make([]bool, streams)}
	m.changed = sync.NewCond(&m.mu)
	return m
}

// mergeLogs begins a log of several engines. The file is the log's from then on, for as long as the process lives.
func mergeLogs(ctx context.Context, engines []*linkem.Engine, seed uint64, file *os.File) (*mergedLog, error) {
	m := newMergedLog(file, len(engines))
	if _, err := file.Write(impair.AppendHeader(nil, seed)); err != nil {
		return nil, control.Errorf(control.Unable, "%v", err)
	}
	for i, engine := range engines {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
		go func() {
			defer r.Close()
			m.take(i, r)
		}()
		err = engine.Record(ctx, seed, w)
		w.Close() // the engine has it
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// take takes what an engine writes, to the end.
func (m *mergedLog) take(stream int, from io.Reader) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.over[stream] = true
		m.changed.Broadcast()
	}()
	err := eachLines(from, func(lines []byte) { m.write(stream, lines) })
	if err != nil {
		m.fail(err)
	}
}

// eachLines calls take for the whole lines of a log, several at once, without its first. A rest that is no line is left out.
func eachLines(from io.Reader, take func([]byte)) error {
	buffer := make([]byte, mergeChunk)
	have, begun := 0, false
	for {
		n, err := from.Read(buffer[have:])
		have += n
		whole := buffer[:bytes.LastIndexByte(buffer[:have], '\n')+1]
		lines := whole
		if !begun && len(lines) > 0 {
			begun = true
			lines = lines[bytes.IndexByte(lines, '\n')+1:]
		}
		if len(lines) > 0 {
			take(lines)
		}
		have = copy(buffer, buffer[len(whole):have])
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case have == len(buffer):
			return fmt.Errorf("a line of more than %d bytes, which is no record", have)
		}
	}
}

// write writes lines of a stream, or counts those that cannot be written.
func (m *mergedLog) write(stream int, lines []byte) {
	records := impair.CountRecords(lines)
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	failed := m.failure != ""
	m.mu.Unlock()
	if !failed {
		if _, err := m.file.Write(lines); err != nil {
			m.fail(err)
			failed = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.came[stream] += records
	m.received += records
	if failed {
		m.unsaved += records
	}
	m.changed.Broadcast()
}

// fail notes why nothing more is written; the first reason counts.
func (m *mergedLog) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure == "" {
		m.failure = err.Error()
	}
}

// await waits until so many records of each stream have come, or no more can.
func (m *mergedLog) await(ctx context.Context, written []uint64) error {
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changed.Broadcast()
	})
	defer stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range written {
		for m.came[i] < written[i] && !m.over[i] && ctx.Err() == nil {
			m.changed.Wait()
		}
	}
	return ctx.Err()
}

// count has the sum of the counts that the engines made tell of the file.
func (m *mergedLog) count(all *report.Recorded) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := all.Records - min(all.Records, m.received) // on their way from an engine that has gone
	all.Records = m.received - m.unsaved
	all.Missing += m.unsaved + lost
	if all.Error == "" {
		all.Error = m.failure
	}
}

// replayEach has engines replay a log that each reads through a stream of its own. It returns what is in the log.
func replayEach(ctx context.Context, engines []*linkem.Engine, file *os.File) (linkem.Log, error) {
	logs := make([]linkem.Log, len(engines))
	readers, writers := make([]*os.File, len(engines)), make([]*os.File, len(engines))
	defer func() {
		for i := range engines {
			readers[i].Close() // of one that is nil it does nothing
			writers[i].Close()
		}
	}()
	for i := range engines {
		var err error
		if readers[i], writers[i], err = os.Pipe(); err != nil {
			return linkem.Log{}, fmt.Errorf("pipe: %w", err)
		}
	}
	copied := make(chan error, 1)
	go func() { copied <- copyToEach(writers, file) }()
	err := parallel(ctx, len(engines), len(engines), func(ctx context.Context, i int) (err error) {
		defer readers[i].Close()
		logs[i], err = engines[i].Replay(ctx, readers[i])
		return err
	})
	if copyErr := <-copied; err == nil {
		err = copyErr
	}
	return logs[0], err
}

// copyToEach copies a file to pipes, to its end or as far as they are read, and closes them.
func copyToEach(to []*os.File, from io.Reader) (err error) {
	to = slices.Clone(to)
	buffer := make([]byte, mergeChunk)
	for len(to) > 0 && err == nil {
		var n int
		n, err = from.Read(buffer)
		to = slices.DeleteFunc(to, func(w *os.File) bool {
			_, err := w.Write(buffer[:n])
			if err != nil { // its engine has said why it reads no more
				w.Close()
			}
			return err != nil
		})
	}
	for _, w := range to {
		w.Close()
	}
	if err == io.EOF {
		err = nil
	}
	return err
}

// mergeLosses writes the losses of several engines, which are at other hosts, as one log.
func mergeLosses(ctx context.Context, engines []*linkem.Engine, seed uint64, to *os.File) error {
	text := impair.AppendHeader(nil, seed)
	for _, engine := range engines {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("pipe: %w", err)
		}
		read := make(chan error, 1)
		go func() { read <- eachLines(r, func(lines []byte) { text = append(text, lines...) }) }()
		err = engine.Losses(ctx, seed, w)
		w.Close()
		if readErr := <-read; err == nil {
			err = readErr
		}
		r.Close()
		if err != nil {
			return err
		}
	}
	_, err := to.Write(text)
	return err
}
