package terminal

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// envPanics makes the test binary lend its terminal and panic.
const envPanics = "NDKLAB_TEST_PANICS"

func TestMain(m *testing.M) {
	if where := os.Getenv(envPanics); where != "" {
		panics(where)
	}
	os.Exit(m.Run())
}

func panics(where string) {
	s, err := Attach(os.Stdin, os.Stdout)
	if err != nil {
		panic(err)
	}
	if is, err := attributes(os.Stdin); err != nil || cmp.Equal(is, s.saved) {
		os.Exit(9)
	}
	if where == "here" {
		defer func() { _ = s.Detach() }()
		panic("here")
	}
	go s.guarded(func() { panic("elsewhere") })()
	select {}
}

// A terminal is given back upon a panic, wherever it is.
func TestPanic(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		control, peer, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer control.Close()
		defer peer.Close()
		before, err := attributes(peer)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), envPanics+"="+where)
		cmd.Stdin, cmd.Stdout = peer, peer
		err = cmd.Run()
		if cmd.ProcessState.ExitCode() != 2 { // a panic's
			t.Errorf("%s: %v", where, err)
		}
		after, err := attributes(peer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: %s", where, diff)
		}
	}
}

// Only terminals are terminals.
func TestIs(t *testing.T) {
	control, peer, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	defer peer.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !Is(peer) || Is(null) {
		t.Errorf("a terminal: %v; /dev/null: %v", Is(peer), Is(null))
	}
	if _, err := Attach(null, null); err == nil {
		t.Error("/dev/null can be lent as a terminal")
	}
}
