package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"golang.org/x/sys/unix"
)

// The process's own /proc/PID/net is that of its first thread, which no test is to take
// elsewhere.
func init() { runtime.LockOSThread() }

// TestMain has this binary be the programs that measure, too.
func TestMain(m *testing.M) {
	lab.Child()
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// joined is a pair of places that lasts as long as the test, which is skipped for who may
// not make one.
func joined(t *testing.T) [2]*place {
	t.Helper()
	if err := checkRoot(); err != nil {
		t.Skip(err)
	}
	places, err := newPair()
	if errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closePlaces(places[:]...); err != nil {
			t.Error(err)
		}
	})
	return places
}

// limited bounds a test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Every kind of measurement finds something.
func TestMeasurements(t *testing.T) {
	places := joined(t)
	short := []string{"-warmup", "10ms", "-duration", "50ms"}
	type found map[string]float64
	positive := func(keys ...string) func(found) bool {
		return func(f found) bool {
			return !slices.ContainsFunc(keys, func(key string) bool { return !(f[key] > 0) })
		}
	}
	for name, c := range map[string]struct {
		program string
		flags   []string
		ok      func(found) bool
	}{
		"WRITE":            {"end", []string{"-op", "write", "-qps", "3"}, positive("gbps", "messages_per_second", "cpu")},
		"READ, polling":    {"end", []string{"-op", "read", "-poll"}, positive("gbps")},
		"SEND, no defer":   {"end", []string{"-op", "send", "-nodefer", "-size", "64"}, positive("gbps")},
		"event-driven":     {"end", []string{"-op", "send", "-mode", "lat"}, positive("samples", "median_us")},
		"polling":          {"end", []string{"-op", "send", "-mode", "lat", "-poll"}, positive("samples", "p99_us", "p99.9_us", "max_us")},
		"posting":          {"end", []string{"-mode", "post", "-size", "8"}, positive("median_ns", "samples")},
		"idle":             {"end", []string{"-mode", "idle", "-qps", "50"}, positive("connections", "heap_bytes")},
		"floor":            {"floor", nil, positive("gbps")},
		"floor, all of it": {"floor", []string{"-crc", "-copy", "-busy", "-size", "1MiB"}, positive("gbps")},
		"UDP, blocking":    {"udp", nil, positive("samples", "median_us")},
		"UDP, polling":     {"udp", []string{"-busy"}, positive("samples")},
	} {
		t.Run(name, func(t *testing.T) {
			commands := func(flags ...string) (command, command) { return endCommands(places, flags...) }
			if c.program != "end" {
				commands = func(flags ...string) (command, command) { return rawCommands(places, c.program, flags...) }
			}
			server, client := commands(append(c.flags, short...)...)
			text, _, err := between(limited(t), places, server, client)
			if err != nil {
				t.Fatal(err)
			}
			var f found
			if err := json.Unmarshal([]byte(text), &f); err != nil || !c.ok(f) {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
}

// A server that fails is why its client did, and says itself what was wrong.
func TestFailureIsTold(t *testing.T) {
	places := joined(t)
	server := command{args: []string{"sh", "-c", "echo first >&2; echo the last line >&2; exit 3"}}
	client := command{args: []string{"sh", "-c", "exit 1"}}
	_, _, err := between(limited(t), places, server, client)
	if err == nil || !strings.Contains(err.Error(), "sh: exit status 3: the last line") {
		t.Error(err)
	}
	server = command{args: []string{"sh", "-c", "echo ready; read line"}}
	_, _, err = between(limited(t), places, server, client)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Error(err)
	}
	server = command{args: []string{"no-such-program"}}
	if _, _, err = between(limited(t), places, server, client); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Error(err)
	}
}

// A process that hangs is killed, and so is whatever it has started.
func TestStopKillsTheGroup(t *testing.T) {
	places := joined(t)
	p, err := places[0].start(limited(t), command{args: []string{"sh", "-c", "sleep 100 & echo started; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ready(limited(t), ""); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("it is too late"))
	if err := p.wait(over); err == nil || !strings.Contains(err.Error(), "it is too late") {
		t.Error(err)
	}
	// The killed members of the group are for their new parent to reap.
	err = nil
	for ctx := limited(t); err == nil && ctx.Err() == nil; {
		err = alive(p.pid)
	}
	if !errors.Is(err, unix.ESRCH) {
		t.Error("the group is still there:", err)
	}
}

// alive is ESRCH when nothing of a process group runs any more.
func alive(group int) error {
	if err := unix.Kill(-group, 0); err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil || len(text) == 0 {
		return err
	}
	members, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, m := range members {
		stat, err := os.ReadFile("/proc/" + m.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state string
		var parent, of int
		if n, _ := fmt.Sscan(rest, &state, &parent, &of); n == 3 && of == group && state != "Z" {
			return nil
		}
	}
	return unix.ESRCH
}

// A port that somebody listens on is found, and no other.
func TestListens(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	p := &process{pid: os.Getpid()}
	for _, c := range []struct {
		port string
		want bool
	}{
		{fmt.Sprint("tcp:", l.Addr().(*net.TCPAddr).Port), true},
		{fmt.Sprint("udp:", u.LocalAddr().(*net.UDPAddr).Port), true},
		{"tcp:1", false},
		{"udp:1", false},
	} {
		if got, err := p.listens(c.port); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.port, got, err)
		}
	}
	if _, err := p.listens("tcp:x"); err == nil {
		t.Error("x is a port")
	}
}
