package monitor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/leak"
)

// version is that of the program here.
const version = "1.2"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Program {
		os.Exit(Main(version, show))
	}
	leak.Main(m)
}

// show does as the name of the lab says.
func show(ctx context.Context, params Params) error {
	switch params.Metrics.Lab {
	case "dies":
		os.Exit(7)
	case "waits":
		if _, err := os.Stdout.WriteString("here\n"); err != nil {
			return err
		}
		<-ctx.Done()
		runtime.Gosched() // whoever does not wait has ended by now
		if _, err := os.Stdout.WriteString("gone\n"); err != nil {
			return err
		}
		return ctx.Err()
	case "talks":
		for {
			if _, err := os.Stdout.WriteString("here\n"); err != nil {
				return err
			}
		}
	case "ends":
		return control.Errorf(control.Usage, "lab ends was taken down at %s", params.Metrics.Listen)
	}
	return nil
}

// install has the program, which is this one, in PATH and nowhere else.
func install(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(self, filepath.Join(folder, Program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
}

// Run returns how the program ended, also if it dies.
func TestRun(t *testing.T) {
	install(t)
	for _, c := range []struct {
		params Params
		code   control.Code
		text   string // "": no error
	}{
		{Params{Metrics: &Metrics{Lab: "fine"}, Version: version}, "", ""},
		{Params{Metrics: &Metrics{Lab: "ends", Listen: "here"}, Version: version}, control.Usage, "lab ends was taken down at here"},
		{Params{Metrics: &Metrics{Lab: "dies"}, Version: version}, control.Failed, "ndklab-monitor died (exit status 7)"},
		{Params{Metrics: &Metrics{Lab: "fine"}, Version: "1.3"}, control.Unable, "ndklab-monitor is of version 1.2, ndklab of version 1.3: `make build` builds both"},
	} {
		err := Run(t.Context(), c.params, nil, nil, os.Stderr)
		if c.text == "" && err != nil || c.text != "" && (err == nil || err.Error() != c.text || control.CodeOf(err) != c.code) {
			t.Errorf("%+v: %v, want %s %q", c.params, err, c.code, c.text)
		}
	}
}

// A writer tells what is written.
type writer chan string

func (w writer) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// The program ends with the context of who runs it, in good order.
func TestInterrupt(t *testing.T) {
	install(t)
	ctx, cancel := context.WithCancel(t.Context())
	said, ended := make(writer, 2), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Params{Metrics: &Metrics{Lab: "waits"}, Version: version}, nil, said, os.Stderr)
	}()
	if line := <-said; line != "here\n" {
		t.Errorf("%q", line)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case line := <-said:
		if line != "gone\n" {
			t.Errorf("%q", line)
		}
	default:
		t.Error("the program was not waited for")
	}
}

// A reader of the output who goes is no failure.
func TestReaderGone(t *testing.T) {
	install(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	if err := Run(t.Context(), Params{Metrics: &Metrics{Lab: "talks"}, Version: version}, nil, w, os.Stderr); err != nil {
		t.Error(err)
	}
}

// Without the program, the error says where it should be, and how to have it.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Run(t.Context(), Params{}, nil, nil, nil)
	if control.CodeOf(err) != control.Unable || !strings.Contains(err.Error(), "the program ndklab-monitor is missing beside /") || !strings.Contains(err.Error(), "`make build`") {
		t.Error(err)
	}
}

// The program is no command.
func TestByHand(t *testing.T) {
	install(t)
	cmd := exec.Command(Program)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || string(out) != "ndklab-monitor: it is no command: `ndklab metrics`, top and ui start it\n" {
		t.Errorf("%v: %q", err, out)
	}
}

// The libraries that monitors need are in no process of a lab, and not in the libraries that others link.
func TestLinked(t *testing.T) {
	const module = "github.com/ndklab/ndklab/"
	for _, of := range []string{"cmd/ndklab", "internal/fabric/linkem", "internal/fabric/lab", "provider/lease", "verbs/engine"} {
		list := exec.Command("go", "list", "-deps", module+of)
		list.Env = append(os.Environ(), "CGO_ENABLED=1") // which verbs/engine needs
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), "\n"+module) {
			t.Fatalf("%s links\n%s", of, out)
		}
		for _, library := range []string{"github.com/prometheus/", "google.golang.org/protobuf/", "net/http\n", "charm.land/", "github.com/charmbracelet/", "github.com/gopacket/"} {
			if strings.Contains(string(out), "\n"+library) {
				t.Errorf("%s links %s", of, library)
			}
		}
	}
}
