package labtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

const echoPort = 7000

// echo serves any number of connections, each of which has its messages come back.
func echo(ctx context.Context, n *labtest.Simulated) error {
	endpoint, err := await.NewEndpoint(ctx, n.Adapter)
	if err != nil {
		return err
	}
	defer endpoint.Close()
	listener, err := endpoint.Listen(ctx, netip.AddrPortFrom(n.Address(), echoPort))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			buffer, err := endpoint.Register(make([]byte, 64), provider.MRAllowLocalWrite)
			if err != nil {
				return
			}
			for {
				length, err := conn.Receive(ctx, buffer.SGL(0, 64))
				if err != nil || conn.Send(ctx, buffer.SGL(0, length)) != nil {
					return
				}
			}
		}()
	}
}

// call sends messages to a server, and returns when each had come back.
func call(ctx context.Context, n *labtest.Simulated, server string, messages int) (took []time.Duration, err error) {
	endpoint, err := await.NewEndpoint(ctx, n.Adapter)
	if err != nil {
		return nil, err
	}
	defer endpoint.Close()
	var to netip.Addr
	endpoint.Local, to = n.PathTo(server)
	conn, err := endpoint.Dial(ctx, netip.AddrPortFrom(to, echoPort))
	if err != nil {
		return nil, err
	}
	buffer, err := endpoint.Register(make([]byte, 128), provider.MRAllowLocalWrite)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		began := time.Now()
		message := fmt.Appendf(nil, "%s %d", n.Name(), i)
		copy(buffer.Bytes, message)
		back, err := conn.PostReceive(ctx, buffer.SGL(64, 64))
		if err != nil {
			return took, err
		}
		if err := conn.Send(ctx, buffer.SGL(0, len(message))); err != nil {
			return took, err
		}
		r, err := back.Wait(ctx)
		if err != nil {
			return took, err
		}
		if got := buffer.Bytes[64:][:r.BytesTransferred]; string(got) != string(message) {
			return took, fmt.Errorf("%q came back as %q", message, got)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

func threeHosts(settings ...labtest.Setting) *labtest.Builder {
	return labtest.Topology().Hosts("a", "b", "server").Switch("s").
		Link("a", "s", labtest.Delay(time.Millisecond)).
		Link("b", "s", labtest.Delay(2*time.Millisecond), labtest.Jitter(200*time.Microsecond)).
		Link("server", "s", settings...)
}

// TestSimulatedPrograms has two clients at a server over a link that loses packets. A message takes the delay of the
// links twice at least, and a seed repeats every time of all, to the nanosecond.
func TestSimulatedPrograms(t *testing.T) {
	play := func(seed uint64) map[string][]time.Duration {
		took := map[string][]time.Duration{}
		client := func(ctx context.Context, n *labtest.Simulated) (err error) {
			took[n.Name()], err = call(ctx, n, "server", 40)
			return err
		}
		r := labtest.Simulate(t, threeHosts(labtest.Loss(0.05)), seed,
			labtest.Server("server", echo), labtest.Client("a", client), labtest.Client("b", client))
		if !r.Passed {
			t.Fatal("the run has not passed")
		}
		return took
	}
	for seed := range uint64(20) {
		first, second := play(seed), play(seed)
		if len(first["a"]) != 40 || len(first["b"]) != 40 {
			t.Fatalf("seed %d: %d and %d messages, expected 40 and 40", seed, len(first["a"]), len(first["b"]))
		}
		if least := slices.Min(first["a"]); least < 2*time.Millisecond {
			t.Errorf("seed %d: the fastest message of a took %v, which is less than the delay of its links", seed, least)
		}
		for _, name := range []string{"a", "b"} {
			if !slices.Equal(first[name], second[name]) {
				t.Errorf("seed %d: %s: %v, and again %v", seed, name, first[name], second[name])
			}
		}
	}
}

// TestSimulatedTime has functions wait for times of their own, between which the network's lie.
func TestSimulatedTime(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	client := func(ctx context.Context, n *labtest.Simulated) error {
		began := time.Now()
		time.Sleep(5 * time.Millisecond)
		if _, err := call(ctx, n, "server", 1); err != nil {
			return err
		}
		note("called")
		if waited := time.Since(began); waited < 9*time.Millisecond || waited > 12*time.Millisecond {
			return fmt.Errorf("it took %v, expected 5 ms, a connection and a message of 2 ms each", waited)
		}
		limited, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-limited.Done()
		note("an hour")
		return nil
	}
	other := func(context.Context, *labtest.Simulated) error {
		time.Sleep(time.Minute)
		note("a minute")
		return nil
	}
	labtest.Simulate(t, threeHosts(), 1, labtest.Server("server", echo), labtest.Client("a", client), labtest.Client("b", other))
	if want := []string{"called", "a minute", "an hour"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
}

// TestSimulatedCrash has the server's node crash and start again beneath a client, which comes again.
func TestSimulatedCrash(t *testing.T) {
	var served, lost int
	server := func(ctx context.Context, n *labtest.Simulated) error {
		served++
		err := echo(ctx, n)
		if served == 1 && err == nil {
			return errors.New("the first life ended well")
		}
		return err
	}
	client := func(ctx context.Context, n *labtest.Simulated) error {
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			if _, err := call(ctx, n, "server", 1000); err != nil {
				lost++
				time.Sleep(100 * time.Millisecond)
			}
		}
		return nil
	}
	b := threeHosts().At(3*time.Second, labtest.Set("stop", "server")).At(6*time.Second, labtest.Set("start", "server"))
	r := labtest.Simulate(t, b, 1, labtest.Server("server", server), labtest.Client("a", client))
	if !r.Passed || served != 2 || lost != 1 {
		t.Errorf("passed: %v, lives of the server: %d, expected 2, errors of the client: %d, expected 1", r.Passed, served, lost)
	}
}
