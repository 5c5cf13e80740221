package capture

// Bounds on the memory of packets that wait to be written: a disk or a reader
// may pause until it is full.
const (
	bufferSize  = 1 << 20 // bytes, about
	bufferCount = 64
)

// A buffer is whole blocks on their way to the files.
type buffer struct {
	blocks []byte
	fresh  bool // begins another file
}

// An output writes to files on a goroutine of its own, so that the recorder does
// not wait for them.
type output struct {
	files  *Files
	spare  chan []byte // to be filled
	full   chan buffer
	failed chan error // has the error once writing fails; what follows is thrown away
	done   chan struct{}
}

func newOutput(files *Files) *output {
	o := &output{
		files: files, spare: make(chan []byte, bufferCount), full: make(chan buffer, bufferCount),
		failed: make(chan error, 1), done: make(chan struct{}),
	}
	for range bufferCount {
		o.spare <- nil
	}
	go o.run()
	return o
}

func (o *output) run() {
	defer close(o.done)
	broken := false
	for b := range o.full {
		if !broken {
			if err := o.write(b); err != nil {
				broken = true
				o.failed <- err
			}
		}
		o.spare <- b.blocks[:0]
	}
}

func (o *output) write(b buffer) error {
	if b.fresh {
		if err := o.files.next(); err != nil {
			return err
		}
	}
	_, err := o.files.Write(b.blocks)
	return err
}

// close waits until all is written, and closes the files.
func (o *output) close() error {
	close(o.full)
	<-o.done
	err := o.files.Close()
	select {
	case first := <-o.failed:
		return first
	default:
		return err
	}
}
