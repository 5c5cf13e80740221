package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A server is ready when it listens itself: not when another program of its node does, nor
// at another port.
func TestListening(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	const port = 7
	other := runIn(t, a, listenOnSignal, "0")
	other.says(t, "waiting")
	if err := a.Signal(t.Context(), other.id, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := a.Listening(t.Context(), other.id, 0); err != nil {
		t.Error(err)
	}
	server := runIn(t, a, listenOnSignal, strconv.Itoa(port))
	server.says(t, "waiting")
	briefly := func(id string, port uint16) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*lookInterval)
		defer cancel()
		return a.Listening(ctx, id, port)
	}
	if err := briefly(server.id, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before it listens: %v", err)
	}
	ready := make(chan error, 2)
	for _, at := range []uint16{0, port} {
		go func() { ready <- a.Listening(t.Context(), server.id, at) }()
	}
	if err := a.Signal(t.Context(), server.id, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ready; err != nil {
			t.Error(err)
		}
	}
	if err := briefly(server.id, port+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at another port: %v", err)
	}
}

// A shell counts as listening when a program that it has started listens, also in a session
// of its own. A program that listens at the adapter counts, too.
func TestListeningOfOthers(t *testing.T) {
	a, _ := linked(t)
	for _, script := range []string{`"$@"; :`, `setsid "$@" & wait`} {
		server := runIn(t, a, listenOnSignal, "now", script)
		<-server.begun
		if err := a.Listening(t.Context(), server.id, 0); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	}
	server := runIn(t, a, "listen", a.cfg.addresses()[0].Address.String())
	<-server.begun
	if err := a.Listening(t.Context(), server.id, 0); err != nil {
		t.Error(err)
	}
}

// A command that ends without listening is not waited for, nor one that does not run.
func TestListeningNever(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	ctx, cancel := context.WithCancel(t.Context())
	_, result := running(t, ctx, a, "x", "echo ready; exec sleep 100")
	never := make(chan error, 1)
	go func() { never <- a.Listening(t.Context(), "x", 0) }()
	cancel()
	<-result
	select {
	case err := <-never:
		if !errors.Is(err, ErrNotListening) && err == nil {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it is still waited for")
	}
	if err := a.Listening(t.Context(), "y", 0); err == nil {
		t.Error("a command that does not run listens")
	}
}

// listenOnSignal is the program that listens at a port once it gets SIGUSR1; at once at
// any port for "now", by a shell if it is given a script.
const listenOnSignal = "tcp"

func runListener(args []string) error {
	port := args[0]
	switch {
	case len(args) > 1:
		own, err := unix.Open("/proc/self/exe", unix.O_PATH, 0) // an ordinary user may not reach it by its path
		if err != nil {
			return err
		}
		return unix.Exec("/bin/sh", []string{"sh", "-c", args[1], "sh", fmt.Sprintf("/proc/self/fd/%d", own), listenOnSignal, "now"}, os.Environ())
	case port == "now":
		port = "0"
	default:
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, unix.SIGUSR1)
		fmt.Println("waiting")
		<-asked
	}
	l, err := net.Listen("tcp4", ":"+port)
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = l.Accept() // which nobody asks for: it is killed
	return err
}
