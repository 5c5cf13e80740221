package hosts

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/ndklab/ndklab/internal/control"
)

// A Spec says which hosts a lab is to have, as --hosts does.
type Spec struct {
	Kind  Kind
	Count int      // of Local
	Flags []string // of Allocate: srun's
	Names []string // of SSH; of Slurm, those of the allocation that are meant, nil for all
	// Network is the one in which the head is to be reached, as --network says; "": any.
	Network string
	// Continues says that the lab goes on without a host that is lost. It is no part of the text.
	Continues bool
}

// A Kind is that of a Spec.
type Kind string

// The kinds of hosts.
const (
	Local    Kind = "local"    // workers on this machine
	Slurm    Kind = "slurm"    // all hosts of the allocation that this process is in
	Allocate Kind = "allocate" // hosts of an allocation that is made for the lab
	SSH      Kind = "ssh"      // named hosts
	Task     Kind = "step"     // of a Slurm step, in every task of which the same command was started

	Kubernetes Kind = "kubernetes" // the pods of a Job, in one of which this process is
)

// MaxHosts bounds the number of hosts.
const MaxHosts = 1024

// specForms lists the forms of a specification, for errors.
const specForms = "local:N, slurm, slurm:FLAGS of srun, step, kubernetes, names of hosts with commas between, or @FILE with one name a line"

// Parse reads the value of --hosts.
func Parse(text string) (Spec, error) {
	kind, rest, more := strings.Cut(text, ":")
	switch {
	case strings.ContainsFunc(text, unicode.IsControl):
		return Spec{}, control.Errorf(control.Usage, "a control character, expected %s", specForms)
	case text == "":
		return Spec{}, control.Errorf(control.Usage, "no hosts, expected %s", specForms)
	case strings.HasPrefix(text, "@"):
		return parseFile(text[1:])
	case kind == "local":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 || n > MaxHosts {
			return Spec{}, control.Errorf(control.Usage, "%q is no number of workers, expected local:N with N from 1 to %d", rest, MaxHosts)
		}
		return Spec{Kind: Local, Count: n}, nil
	case text == "slurm", text == "step", text == "kubernetes":
		return Spec{Kind: Kind(text)}, nil
	case kind == "slurm":
		flags := strings.Fields(rest)
		if len(flags) == 0 || !strings.HasPrefix(flags[0], "-") {
			return Spec{}, control.Errorf(control.Usage, "%q are no flags of srun, expected such as 'slurm:-N 8 -p rdma'", rest)
		}
		return Spec{Kind: Allocate, Flags: flags}, nil
	case more:
		return Spec{}, control.Errorf(control.Usage, "%q is no launcher, expected %s", kind, specForms)
	}
	spec := Spec{Kind: SSH, Names: strings.Split(text, ",")}
	for i, name := range spec.Names {
		spec.Names[i] = strings.TrimSpace(name)
	}
	return spec, spec.check("")
}

// Known returns the names of the hosts, in order, where they are known before a lab is made; nil where they are not. getenv is
// os.Getenv but in tests.
func (s Spec) Known(getenv func(string) string) (names []string, err error) {
	switch s.Kind {
	case Local:
		for i := range s.Count {
			names = append(names, "host"+strconv.Itoa(i+1))
		}
	case Slurm:
		return jobHosts(getenv)
	case SSH:
		return s.Names, nil
	}
	return names, nil
}

// String returns a text that Parse reads. It names no file.
func (s Spec) String() string {
	switch s.Kind {
	case Local:
		return "local:" + strconv.Itoa(s.Count)
	case Allocate:
		return "slurm:" + strings.Join(s.Flags, " ")
	case SSH:
		return strings.Join(s.Names, ",")
	}
	return string(s.Kind)
}

// parseFile reads names of hosts from a file, one a line. A comment begins with a #.
func parseFile(path string) (Spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return Spec{}, control.Errorf(control.Usage, "%v", err)
	}
	defer f.Close()
	spec := Spec{Kind: SSH}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		spec.Names = append(spec.Names, line)
		if err := checkHost(line); err != "" {
			return Spec{}, control.Errorf(control.Usage, "%s:%d: %s", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Spec{}, control.Errorf(control.Usage, "%s: %v", path, err)
	}
	return spec, spec.check(path + ": ")
}

// check says what is wrong with the names. Its errors begin with where these are.
func (s Spec) check(where string) error {
	seen := map[string]bool{}
	for _, name := range s.Names {
		if problem := checkHost(name); problem != "" {
			return control.Errorf(control.Usage, "%s%s", where, problem)
		}
		if seen[name] {
			return control.Errorf(control.Usage, "%s%q is there two times, expected each host once", where, name)
		}
		seen[name] = true
	}
	if len(s.Names) == 0 || len(s.Names) > MaxHosts {
		return control.Errorf(control.Usage, "%s%d hosts, expected from 1 to %d", where, len(s.Names), MaxHosts)
	}
	return nil
}

// checkHost says why ssh could not take a name for a host's; "" if it can.
func checkHost(name string) string {
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, " /,:") || strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name) + " is no name of a host, expected one that ssh takes, such as node1 or user@node1"
	}
	return ""
}
