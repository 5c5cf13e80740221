package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/hosts"
)

// A Survey is all that there is to say about several hosts.
type Survey struct {
	CanRun bool            `json:"can_run"` // labs can run on all of them
	Hosts  []HostDiagnosis `json:"hosts"`
}

// A HostDiagnosis is that of one of several hosts.
type HostDiagnosis struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why it did not come; then there are no findings
	Diagnosis
}

// methodExamine asks the process that a worker has started (hostPart) to examine its host.
var methodExamine = control.NewMethod[control.None, Diagnosis]("examine")

// hostPart is, as argv[0] names it, what a worker starts on a host that is examined.
const hostPart = lab.DoctorName + " host"

// ExamineHosts examines several hosts at once.
func ExamineHosts(ctx context.Context, spec hosts.Spec) (Survey, error) {
	of := make(chan HostDiagnosis)
	type visits struct {
		all []hosts.Visited
		err error
	}
	over := make(chan visits, 1)
	go func() {
		all, err := hosts.Visit(ctx, spec, func(ctx context.Context, h *hosts.Host) error {
			d, err := methodExamine.Call(ctx, h.Conn, nil)
			if err == nil {
				of <- HostDiagnosis{Name: h.Name, Diagnosis: d}
			}
			return err
		})
		over <- visits{all, err}
	}()
	diagnoses := map[string]HostDiagnosis{}
	for {
		select {
		case d := <-of:
			diagnoses[d.Name] = d
		case v := <-over:
			return survey(v.all, diagnoses), v.err
		}
	}
}

// survey has the diagnoses in the hosts' order, and what there is to say of hosts without one.
func survey(visited []hosts.Visited, diagnoses map[string]HostDiagnosis) Survey {
	s := Survey{CanRun: true}
	for _, v := range visited {
		d, examined := diagnoses[v.Name]
		if !examined {
			d = HostDiagnosis{Name: v.Name, Error: fmt.Sprint(v.Err), Diagnosis: Diagnosis{Findings: []Finding{}}}
		}
		s.CanRun = s.CanRun && d.CanRun
		s.Hosts = append(s.Hosts, d)
	}
	return s
}

// WriteText writes a row for each host, as wide as the terminal: whether labs can run there, and what is missing that could be had.
func (s Survey) WriteText(w io.Writer) error {
	var b strings.Builder
	wide, able := len("host"), 0
	for _, h := range s.Hosts {
		wide = max(wide, len(h.Name))
	}
	const verdict = len("cannot run")
	fmt.Fprintf(&b, "%-*s  %-*s  %s\n", wide, "host", verdict, "labs", "missing")
	for _, h := range s.Hosts {
		can, lines := h.row()
		if h.CanRun {
			able++
		}
		lead := fmt.Sprintf("%-*s  %-*s  ", wide, h.Name, verdict, can)
		for _, line := range lines {
			b.WriteString(text.Hang(w, lead, line))
			lead = strings.Repeat(" ", len(lead))
		}
	}
	if able == len(s.Hosts) {
		b.WriteString("\nlabs can run on all hosts\n")
	} else {
		fmt.Fprintf(&b, "\nlabs can run on %d of %d hosts\n", able, len(s.Hosts))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// row returns the verdict on a host, and lines, one at least, of what is missing there.
func (h *HostDiagnosis) row() (can string, lines []string) {
	if h.Error != "" {
		return "not there", []string{h.Error}
	}
	for _, f := range h.Findings {
		if f.State == Missing && (f.Required || f.Remedy != "") {
			lines = append(lines, f.String())
		}
	}
	if lines == nil {
		lines = []string{"-"}
	}
	if h.CanRun {
		return "can run", lines
	}
	return "cannot run", lines
}

// serveHost is the process of hostPart: it answers its worker until that is gone.
func serveHost() error {
	mux := new(control.Mux)
	methodExamine.Handle(mux, func(ctx context.Context, _ *control.Request, _ control.None) (Diagnosis, error) {
		return Examine(ctx), ctx.Err()
	})
	conn, err := control.FromFile(os.NewFile(3, "control"), mux.Serve)
	if err != nil {
		return err
	}
	<-conn.Done()
	return nil
}
