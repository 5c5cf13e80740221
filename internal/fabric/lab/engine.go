package lab

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/confine"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/node/reaper"
	"golang.org/x/sys/unix"
)

// An engine is the lab's link engine process, which is started when the first
// link needs it.
type engine struct {
	lab    string
	reaper *reaper.Reaper
	died   func(*control.Error) // is told of the end of the process
	// dilation is the lab's; set before the first start.
	dilation int

	mu      sync.Mutex     // guards what follows
	running *linkem.Engine // nil before
	conn    *control.Conn  // of running
	ended   chan struct{}  // closed when its process is gone
}

// channel returns the channel to the engine, started if it was not.
func (e *engine) channel() (*control.Conn, error) {
	if _, err := e.start(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.conn, nil
}

// current is the engine if there is one.
func (e *engine) current() *linkem.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// start returns the engine, started if it was not. The lab cannot keep its
// promises without one, so its end is the lab's.
func (e *engine) start() (*linkem.Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running != nil {
		return e.running, nil
	}
	conn, theirs, err := control.Pair(nil)
	if err != nil {
		return nil, fmt.Errorf("start link engine: %w", err)
	}
	cmd := childCommand(engineName, e.lab, os.Stderr, theirs)
	if e.dilation > 1 {
		cmd.Args = append(cmd.Args, strconv.Itoa(e.dilation))
	}
	err = e.reaper.Start(func() (int, error) {
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
	e.running, e.conn, e.ended = linkem.NewEngine(conn), conn, ended
	go func() {
		err := cmd.Wait()
		close(ended)
		e.reaper.Collected(cmd.Process.Pid)
		e.died(control.Errorf(control.Failed, "the link engine of lab %s died (%v)", e.lab, err))
	}()
	return e.running, nil
}

// runEngine is the engine process, as start starts it.
func runEngine() error {
	signal.Ignore(unix.SIGPIPE) // as its part does (runPart)
	dilation := 1
	if len(os.Args) > 1 {
		var err error
		if dilation, err = strconv.Atoi(os.Args[1]); err != nil {
			return fmt.Errorf("dilation: %w", err)
		}
	}
	if err := confine.Process(); err != nil { // since packets of any program arrive here
		return err
	}
	return linkem.Main(inherited(firstFile, "control"), dilation)
}

// engineTime bounds how long the engine may take to end by itself.
const engineTime = 2 * time.Second

// end has the engine end, and waits for that, when the lab is over. By itself
// it closes its sockets all at once; when it is killed with the lab's other processes
// the kernel takes some ms for each of them.
func (e *engine) end() {
	e.mu.Lock()
	conn, ended := e.conn, e.ended
	e.mu.Unlock()
	if conn == nil {
		return
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(engineTime):
	}
}
