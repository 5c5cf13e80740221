package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
)

const (
	envNamespace = "LEASE_TEST_NAMESPACE" // set in the tests' own namespace
	envProgram   = "LEASE_TEST_PROGRAM"   // the program to be instead of the tests
)

// The addresses of the shared device and of a peer, all on loopback.
var (
	ours   = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fd00::1")}
	theirs = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("fd00::2")}
)

// TestMain runs the tests in a network namespace of their own, in which the
// socket's name, the addresses and port 4791 are free.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envProgram) != "":
		if err := runProgram(os.Getenv(envProgram), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(envNamespace) != "":
		if err := prepareLoopback(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		leak.Main(m)
	}
	runtime.LockOSThread() // Pdeathsig is of the thread
	test := exec.Command("/proc/self/exe", os.Args[1:]...)
	test.Env = append(os.Environ(), envNamespace+"=1")
	test.Stdout, test.Stderr = os.Stdout, os.Stderr
	test.SysProcAttr = &syscall.SysProcAttr{
		// Also as root the tests have no rights outside.
		Cloneflags:  unix.CLONE_NEWNET | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	err := test.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "no namespace of their own for the tests, which are skipped:", err)
	}
}

func prepareLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, a := range []netip.Addr{ours[1], theirs[1]} {
		address, err := netlink.ParseAddr(a.String() + "/128")
		if err != nil {
			return err
		}
		address.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, address); err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
		// Also an address without duplicate address detection is usable only when a thread of the
		// kernel's has seen to it.
		for deadline := time.Now().Add(patience); ; {
			routes, err := netlink.RouteGet(a.AsSlice())
			if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%v is not local: %v, %w", a, routes, err)
			}
		}
	}
	return nil
}

// patience is for what takes milliseconds.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func config(seed uint64) provider.Config {
	return provider.Config{
		Clock: clock.Real(), Rand: rand.New(rand.NewPCG(seed, 1)),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
	}
}

// serving shares a device at our addresses until the test ends.
func serving(t *testing.T, cfg provider.Config) *Server {
	t.Helper()
	carrier, err := udp.Open(udp.Config{Addresses: ours, ReceiveBuffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(cfg, carrier)
	if err != nil {
		t.Fatal(err)
	}
	s.answering = patience // all processes here do answer
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s.Device().Close()
	})
	return s
}

// peer starts a device at their addresses, which nobody shares.
func peer(t *testing.T) *provider.Miniport {
	t.Helper()
	carrier, err := udp.Open(udp.Config{Addresses: theirs, ReceiveBuffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(99)
	cfg.Carrier = carrier
	device, err := provider.NewMiniport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	return device
}

// opened opens the shared device for the test.
func opened(t *testing.T) *provider.Miniport {
	t.Helper()
	device, err := Open(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	return device
}
