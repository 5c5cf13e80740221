package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// logFlags are --record and --replay.
type logFlags struct {
	record, replay string
	flags          *pflag.FlagSet // which tell a name that is empty from none
}

func newLogFlags(cmd *cobra.Command) *logFlags {
	f := &logFlags{flags: cmd.Flags()}
	cmd.Flags().StringVar(&f.record, "record", "", "log every decision on a packet to `FILE`")
	cmd.Flags().StringVar(&f.replay, "replay", "", "repeat the decisions of `FILE`, such a log")
	return f
}

// logHelp describes those flags in the help of the commands that have them.
const logHelp = `--record logs every decision of the link engine, as lines of JSON: the packet (its
place in the direction and, of RoCEv2, opcode, QP and PSN), the time, and what becomes
of it. --replay repeats the decisions of such a log, each for the packet in the same
place. Packets beyond the log meet, with the same --seed, what they would have met then.
The report says how many packets were others than those in the log. Plain links, which
do nothing to packets, and links of netem have no decisions.`

// given reports whether there are any.
func (f *logFlags) given() bool { return f.record != "" || f.replay != "" }

// open opens the files for a lab of the topology file. undo, if the lab does not come
// up, removes what open has made; close, which comes last, leaves it.
func (f *logFlags) open(topology string, options *lab.Options) (undo, closeFiles func(), err error) {
	for name, file := range map[string]string{"record": f.record, "replay": f.replay} {
		if file == "" && f.flags.Changed(name) {
			return nil, nil, misuse("--%s needs the name of a file", name)
		}
	}
	made := false
	undo = func() {
		if made {
			// It was not there before, and has nothing in it.
			_ = os.Remove(f.record)
		}
	}
	closeFiles = func() {
		for _, file := range []*os.File{options.Record, options.Replay} {
			if file != nil {
				file.Close()
			}
		}
	}
	if err = f.openReplay(options); err == nil {
		made, err = f.openRecord(topology, options)
	}
	if err != nil {
		closeFiles()
		undo()
		return nil, nil, err
	}
	return undo, closeFiles, nil
}

func (f *logFlags) openReplay(options *lab.Options) error {
	if f.replay == "" {
		return nil
	}
	info, err := os.Stat(f.replay)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return control.Errorf(control.Usage, "--replay: there is no file %s", f.replay)
	case err != nil:
		return control.Errorf(control.Usage, "--replay: %v", err)
	case !info.Mode().IsRegular():
		return control.Errorf(control.Usage, "--replay: %s is no file that --record wrote", f.replay)
	}
	if options.Replay, err = os.Open(f.replay); err != nil {
		return control.Errorf(control.Usage, "--replay: %v", err)
	}
	return nil
}

// openRecord opens the file to be written, and empties it unless it is one that is
// read. made says whether it was not there before.
func (f *logFlags) openRecord(topology string, options *lab.Options) (made bool, err error) {
	if f.record == "" {
		return false, nil
	}
	// A pipe that nobody reads is refused rather than waited for.
	const flags = os.O_WRONLY | unix.O_NONBLOCK
	options.Record, err = os.OpenFile(f.record, flags|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		return true, nil
	}
	if errors.Is(err, fs.ErrExist) {
		options.Record, err = os.OpenFile(f.record, flags, 0)
	}
	if errors.Is(err, unix.ENXIO) {
		return false, control.Errorf(control.Usage, "--record: nobody reads the pipe %s", f.record)
	}
	if err != nil {
		return false, control.Errorf(control.Usage, "--record: %v", err)
	}
	info, err := options.Record.Stat()
	if err != nil {
		return false, err
	}
	for _, read := range []string{topology, f.replay} {
		if other, err := os.Stat(read); err == nil && os.SameFile(info, other) {
			return false, control.Errorf(control.Usage, "--record: %s is read, and not written over", f.record)
		}
	}
	if !info.Mode().IsRegular() {
		return false, nil
	}
	if err := options.Record.Truncate(0); err != nil {
		return false, fmt.Errorf("--record: %w", err)
	}
	return false, nil
}
