package lab

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ndklab/ndklab/fabric/linkem"
	"github.com/ndklab/ndklab/internal/control"
)

// An engine is the lab's link engine process, which is started when the first
// link needs it.
type engine struct {
	mu      sync.Mutex     // guards what follows
	running *linkem.Engine // nil before
	conn    *control.Conn  // of running
	ended   chan struct{}  // closed when its process is gone
}

// current is the engine if there is one.
func (e *engine) current() *linkem.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// startedEngine is the engine, started if it was not. The lab cannot keep its
// promises without one, so its end is the lab's.
func (s *Supervisor) startedEngine() (*linkem.Engine, error) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if s.engine.running != nil {
		return s.engine.running, nil
	}
	conn, theirs, err := control.Pair(nil)
	if err != nil {
		return nil, fmt.Errorf("start link engine: %w", err)
	}
	cmd := childCommand(engineName, s.name, os.Stderr, theirs)
	err = s.reaper.Start(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	theirs.Close()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start link engine: %w", err)
	}
	ended := make(chan struct{})
	s.engine.running, s.engine.conn, s.engine.ended = linkem.NewEngine(conn), conn, ended
	go func() {
		err := cmd.Wait()
		close(ended)
		s.reaper.Collected(cmd.Process.Pid)
		s.end(control.Errorf(control.Failed, "the link engine of lab %s died (%v)", s.name, err))
	}()
	return s.engine.running, nil
}

// engineTime bounds how long the engine may take to end by itself.
const engineTime = 2 * time.Second

// endEngine has the engine end, and waits for that, when the lab is over. By itself
// it closes its sockets all at once; when it is killed with the lab's other processes
// the kernel takes some ms for each of them.
func (s *Supervisor) endEngine() {
	s.engine.mu.Lock()
	conn, ended := s.engine.conn, s.engine.ended
	s.engine.mu.Unlock()
	if conn == nil {
		return
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(engineTime):
	}
}
