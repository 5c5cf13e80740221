package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/html"
	"github.com/ndklab/ndklab/internal/fabric/report/junit"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/internal/textfile"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// reportFlags are the flags for files that reports are written to, beside what is
// printed.
type reportFlags struct {
	forms []reportForm
	cmd   *cobra.Command
}

// A reportForm is a form of reports in files.
type reportForm struct {
	flag, usage string
	write       func(io.Writer, *report.Suite) error
	file        string // "": none is asked for
}

func newReportFlags(cmd *cobra.Command) *reportFlags {
	f := &reportFlags{cmd: cmd, forms: []reportForm{
		{flag: "junit", usage: "write the report as JUnit XML, which CI systems read, to `FILE`", write: junit.Write},
		{flag: "html", usage: "write the report as a page for browsers, with plots, to `FILE`", write: html.Write},
		{flag: "write-baseline", usage: "write the figures of simulated runs, for --baseline, to `FILE`", write: suite.WriteBaseline},
	}}
	for i := range f.forms {
		cmd.Flags().StringVar(&f.forms[i].file, f.forms[i].flag, "", f.forms[i].usage)
	}
	return f
}

// check finds what would keep files from being written before anything is run.
func (f *reportFlags) check() error {
	flags := map[string]string{} // by the file
	for i := range f.forms {
		form := &f.forms[i]
		if form.file == "" {
			if f.cmd.Flags().Changed(form.flag) {
				return misuse("--%s needs the name of a file", form.flag)
			}
			continue
		}
		if other := flags[filepath.Clean(form.file)]; other != "" {
			return misuse("--%s and --%s are the same file, expected two", other, form.flag)
		}
		flags[filepath.Clean(form.file)] = form.flag
		folder := filepath.Dir(form.file)
		info, err := os.Stat(form.file)
		switch {
		case err == nil && info.IsDir():
			return control.Errorf(control.Usage, "--%s: %s is a folder, expected a file", form.flag, form.file)
		case err == nil && !info.Mode().IsRegular():
			continue
		}
		if info, err = os.Stat(folder); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return control.Errorf(control.Usage, "--%s: there is no folder %s", form.flag, folder)
		}
		if err == nil {
			err = unix.Access(folder, unix.W_OK)
		}
		if err != nil {
			return control.Errorf(control.Usage, "--%s: folder %s: %v", form.flag, folder, err)
		}
	}
	return nil
}

// write writes the files that are asked for.
func (f *reportFlags) write(s *report.Suite) error {
	var problems error
	for i := range f.forms {
		form := &f.forms[i]
		if form.file == "" {
			continue
		}
		if err := writeWhole(form.file, func(w io.Writer) error { return form.write(w, s) }); err != nil {
			problems = errors.Join(problems, control.Errorf(control.Unable, "--%s: %v", form.flag, err))
		}
	}
	return problems
}

// writeWhole has write write a file, which is there when all of it is, in the place of one
// that was there before; what is no regular file is written to as it is.
func writeWhole(path string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o666)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			file, err := textfile.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(write(file), file.Close())
		}
		mode = info.Mode().Perm()
		if path, err = filepath.EvalSymlinks(path); err != nil { // the link stays
			return err
		}
	}
	part := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	if err = errors.Join(write(file), file.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(part))
	}
	return nil
}
