package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/internal/textfile"
)

// mostBytes is the most bytes that the file of a report may have.
const mostBytes = 1 << 30

// ReadRunFile reads the report of a run from a file, or that of the only lab of a suite.
func ReadRunFile(file string) (*Run, error) {
	content, err := textfile.Read(file, mostBytes)
	if err != nil {
		return nil, failure.Errorf(failure.Usage, "%v", err)
	}
	r, err := ReadRun(content, "")
	if err != nil {
		return nil, failure.Errorf(failure.Usage, "%s: %v; expected what `ndklab run -o json` prints", file, err)
	}
	return r, nil
}

// ReadRun reads the report of a run, or that of a lab out of the report of a suite: of several, the one of
// that lab.
func ReadRun(content []byte, lab string) (*Run, error) {
	var found struct {
		Run
		Labs []Run `json:"labs"`
	}
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("no report: %w", err)
	}
	if len(found.Labs) == 0 {
		if found.Workloads == nil {
			return nil, errors.New("no report: it has neither workloads nor labs")
		}
		return &found.Run, nil
	}
	var names []string
	for i := range found.Labs {
		if found.Labs[i].Lab == lab {
			return &found.Labs[i], nil
		}
		names = append(names, found.Labs[i].Lab)
	}
	if len(found.Labs) == 1 {
		return &found.Labs[0], nil
	}
	if lab == "" {
		return nil, fmt.Errorf("it is the report of several labs, %s, expected that of one", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no lab %s, but %s", lab, strings.Join(names, ", "))
}
