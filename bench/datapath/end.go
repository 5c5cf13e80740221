package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errUsage marks errors in a command line.
var errUsage = errors.New("command line")

// An endConfig says what one end of a measurement does. Both ends are told the same
// but for Role, Local and Peers.
type endConfig struct {
	Role   string // server, client, or mesh: both at once
	Local  netip.Addr
	Peers  []netip.Addr
	Op     string // write, read, send
	Mode   string // bw, lat, post, idle
	Size   int    // of a message, bytes
	Depth  int    // requests in flight on each queue pair
	QPs    int    // per peer
	Poll   bool   // the consumer polls its completion queue, instead of arming it
	Defer  bool   // all but the last of several requests are posted with OpDefer
	WarmUp time.Duration
	Length time.Duration // of the measurement, after WarmUp
	// CPUProfile is a file for a profile of the measurement; "" for none.
	CPUProfile string
}

// roles, operations and modes that there are.
var (
	roles      = []string{"server", "client", "mesh"}
	operations = []string{"write", "read", "send"}
	modes      = []string{"bw", "lat", "post", "idle"}
)

// flags defines the flags of an end. Those of who measures a pair by hand are the same but for
// where it is.
func (c *endConfig) flags(f *flag.FlagSet) {
	choice(f, &c.Op, "op", operations, "operation")
	choice(f, &c.Mode, "mode", modes, "what is measured: throughput; the round trip of a SEND there and one back; the time to post a request; the memory of idle connections")
	f.Func("size", "bytes of a message, such as 8, 64KiB, 1MiB (default 64KiB)", func(text string) (err error) {
		c.Size, err = parseSize(text)
		return err
	})
	c.Size = 64 << 10
	f.IntVar(&c.Depth, "depth", 16, "requests in flight on each queue pair")
	f.IntVar(&c.QPs, "qps", 1, "queue pairs to each peer")
	f.BoolVar(&c.Poll, "poll", false, "poll the completion queue instead of arming it")
	c.Defer = true
	f.BoolFunc("nodefer", "post every request without OpDefer", func(text string) error {
		no, err := strconv.ParseBool(text)
		c.Defer = !no
		return err
	})
	f.DurationVar(&c.WarmUp, "warmup", 300*time.Millisecond, "time before the measurement")
	f.DurationVar(&c.Length, "duration", 3*time.Second, "time of the measurement")
	f.StringVar(&c.CPUProfile, "cpuprofile", "", "file for a profile of the measurement")
}

func choice(f *flag.FlagSet, value *string, name string, choices []string, what string) {
	*value = choices[0]
	f.Func(name, fmt.Sprintf("%s: %s (default %s)", what, strings.Join(choices, ", "), choices[0]), func(text string) error {
		for _, c := range choices {
			if c == text {
				*value = c
				return nil
			}
		}
		return fmt.Errorf("must be one of %s", strings.Join(choices, ", "))
	})
}

// parseSize reads a number of bytes with the unit B, KiB, MiB or GiB, or none.
func parseSize(text string) (int, error) {
	number, shift := strings.TrimSuffix(text, "B"), 0
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if rest, ok := strings.CutSuffix(number, unit); ok && strings.HasSuffix(text, "B") {
			number, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n<<shift > 1<<30 {
		return 0, fmt.Errorf("must be 0 to 1GiB, as in 8, 64KiB or 1MiB")
	}
	return int(n << shift), nil
}

// check checks what flags cannot.
func (c *endConfig) check() error {
	switch {
	case c.Depth < 1 || c.Depth > maxDepth:
		return fmt.Errorf("-depth %d: must be 1 to %d", c.Depth, maxDepth)
	case c.QPs < 1 || c.QPs > 100_000:
		return fmt.Errorf("-qps %d: must be 1 to 100000", c.QPs)
	case c.Depth*c.QPs > 1<<20:
		return fmt.Errorf("-depth %d, -qps %d: more than %d requests in flight", c.Depth, c.QPs, 1<<20)
	case c.Length <= 0 || c.Length > time.Minute:
		return fmt.Errorf("-duration %v: must be up to 1m", c.Length)
	case c.WarmUp < 0 || c.WarmUp > time.Minute:
		return fmt.Errorf("-warmup %v: must be up to 1m", c.WarmUp)
	case c.Mode == "lat" && (c.QPs > 1 || c.Op != "send"):
		return errors.New("-mode lat is of one queue pair and -op send")
	case c.Mode == "post" && (c.QPs > 1 || c.Op == "read"):
		return errors.New("-mode post is of one queue pair and -op write or send")
	case c.Size == 0:
		return errors.New("-size 0 moves nothing")
	}
	return nil
}

// maxDepth bounds the requests that a queue pair takes with the provider's default limits.
const maxDepth = 32768

// parseEnd reads the command line of an end.
func parseEnd(args []string) (*endConfig, error) {
	c := &endConfig{}
	f := flag.NewFlagSet("end", flag.ContinueOnError)
	choice(f, &c.Role, "role", roles, "which end")
	f.Func("local", "address of this end's interface", func(text string) (err error) {
		c.Local, err = netip.ParseAddr(text)
		return err
	})
	f.Func("peer", "addresses of the servers, separated by commas", func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			a, err := netip.ParseAddr(part)
			if err != nil {
				return err
			}
			c.Peers = append(c.Peers, a)
		}
		return nil
	})
	c.flags(f)
	if err := parseFlags(f, args); err != nil {
		return nil, err
	}
	if !c.Local.IsValid() {
		return nil, fmt.Errorf("%w: -local is missing", errUsage)
	}
	if c.Role == "mesh" && (c.Mode != "bw" || c.Op == "send") {
		return nil, fmt.Errorf("%w: -role mesh is of -mode bw and -op write or read", errUsage)
	}
	if (c.Role != "server") != (len(c.Peers) > 0) {
		return nil, fmt.Errorf("%w: -peer is for -role client and mesh, which need it", errUsage)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, nil
}

// parseFlags reads a command line that has nothing but flags.
func parseFlags(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard) // of what is wrong, the error is enough
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(os.Stdout)
		f.Usage()
		return err
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is no flag", f.Arg(0))
	}
	if err != nil {
		return fmt.Errorf("%w: %w; -help lists the flags", errUsage, err)
	}
	return nil
}

// A usage holds what this process has used so far.
type usage struct {
	at, cpu time.Duration
	memory  runtime.MemStats
}

// A Cost holds what a process used during its measurement.
type Cost struct {
	CPU       float64 `json:"cpu"` // processors
	GCs       uint32  `json:"gcs"`
	LongestGC float64 `json:"longest_gc_pause_us"`
}

var started = time.Now()

func used() *usage {
	u := &usage{at: time.Since(started), cpu: processorTime()}
	runtime.ReadMemStats(&u.memory)
	return u
}

// since returns the cost from before to u. The runtime keeps the last 256 pauses.
func (u *usage) since(before *usage) Cost {
	c := Cost{CPU: float64(u.cpu-before.cpu) / float64(u.at-before.at), GCs: u.memory.NumGC - before.memory.NumGC}
	for i := range min(c.GCs, uint32(len(u.memory.PauseNs))) {
		pause := u.memory.PauseNs[(u.memory.NumGC-i+255)%256]
		c.LongestGC = max(c.LongestGC, float64(pause)/1e3)
	}
	return c
}

// processorTime returns the processor time that all threads of this process have used.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // fails only for a bad address
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profile starts a profile if one is wanted; stop ends it.
func (c *endConfig) profile() (stop func() error, err error) {
	if c.CPUProfile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(c.CPUProfile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// runEnd runs one end of a measurement.
func runEnd(ctx context.Context, args []string) error {
	c, err := parseEnd(args)
	if err != nil {
		return err
	}
	d, err := openDevice(ctx, c)
	if err != nil {
		return err
	}
	switch c.Mode {
	case "lat":
		return d.pingPong(ctx)
	case "post":
		return d.posting(ctx)
	case "idle":
		return d.idle(ctx)
	}
	return d.throughput(ctx)
}
