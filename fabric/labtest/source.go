package labtest

import (
	"errors"
	"fmt"

	"github.com/ndklab/ndklab/internal/textfile"
	"github.com/ndklab/ndklab/topology"
)

// A Source describes a lab: the path of a topology file, from the folder of the test's
// package; the text of one; or a topology made in code.
type Source interface{ string | YAML | *Builder }

// YAML is the text of a topology file.
type YAML string

// A document is the text of a topology, and what it is called in errors.
type document struct {
	name, text string
	origins    []origin // of a topology made in code, where its lines come from
}

// read reads a source. The error is that of a file that cannot be read.
func read[S Source](source S) (*document, error) {
	switch s := any(source).(type) {
	case *Builder:
		text, origins := s.render()
		return &document{name: "topology", text: text, origins: origins}, nil
	case YAML:
		return &document{name: "topology.yaml", text: string(s)}, nil
	}
	path := string(any(source).(string))
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return &document{name: path, text: string(data)}, nil
}

// readFile is a topology.ReadFile.
func readFile(path string) ([]byte, error) { return textfile.Read(path, topology.MaxSize+1) }

// parse checks the document. Errors and checks of a topology made in code have the place
// of the call that they are about.
func (d *document) parse(o topology.Options) (*topology.Topology, error) {
	o.Read = readFile
	topo, err := topology.ParseWith(o, d.name, []byte(d.text))
	if err != nil {
		return nil, d.called(err)
	}
	for i := range topo.Checks {
		if at := d.origin(topo.Checks[i].Place.File, topo.Checks[i].Place.Line); at.file != "" {
			topo.Checks[i].Place = topology.Place{File: at.file, Line: at.line, Column: 1}
		}
	}
	return topo, nil
}

// origin returns the origin of a line of a topology made in code; the zero origin for
// others.
func (d *document) origin(file string, line int) origin {
	if file != d.name || line < 1 || line > len(d.origins) {
		return origin{}
	}
	return d.origins[line-1]
}

// called is an error of Parse, with places of calls.
func (d *document) called(err error) error {
	var invalid topology.ErrorList
	if d.origins == nil || !errors.As(err, &invalid) {
		return err
	}
	var all []error
	for _, e := range invalid {
		if at := d.origin(e.File, e.Line); at.file != "" {
			all = append(all, fmt.Errorf("%s:%d: %s", at.file, at.line, e.Message))
		} else {
			all = append(all, e)
		}
	}
	return errors.Join(all...)
}
