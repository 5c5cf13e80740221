package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"golang.org/x/sys/unix"
)

func init() {
	// listen says "listening", reads an interface as tcpdump does until SIGINT, and
	// says how long the longest packet was, how many of RoCEv2 were right and wrong, and how
	// many it has missed.
	programs["listen"] = func([]string) error {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT)
		defer stop()
		const everything = unix.ETH_P_ALL << 8 // in network byte order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, everything)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20); err != nil {
			return err
		}
		socket := os.NewFile(uintptr(fd), "packets")
		context.AfterFunc(ctx, func() { socket.SetReadDeadline(time.Unix(1, 0)) })
		fmt.Println("listening")
		var verifier roce.Verifier
		var received roce.Received
		frame, longest, right, wrong := make([]byte, 1<<17), 0, 0, 0
		read := socket.Read
		for {
			n, err := read(frame)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				// On a busy machine there may be packets that have not been read yet.
				read = func(b []byte) (int, error) { return unix.Read(fd, b) }
				continue
			}
			if err == unix.EAGAIN {
				missed, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
				if err != nil {
					return err
				}
				fmt.Println(longest, right, wrong, missed.Drops)
				return nil
			}
			if err != nil {
				return err
			}
			longest = max(longest, n)
			if err := verifier.DecodeIP(frame[14:n], &received); err == nil {
				right++
			} else if !errors.Is(err, roce.ErrNotRoCE) {
				wrong++
			}
		}
	}
}

// With offload off, who looks at an interface, at either end, without knowing of
// super-packets sees wire packets, whose ICRCs are right with the identifications that
// are there. With offload on it is not so, which shows that the test can tell.
func TestOffload(t *testing.T) {
	const mtu = 4200
	for _, link := range []string{"offload: off", "offload: off, delay: 100us", "offload: on", "offload: on, delay: 100us"} {
		t.Run(link, func(t *testing.T) {
			l := start(t, runnable(t, link, slowWorkload))
			listeners := map[string]*running{}
			for _, name := range []string{"client", "server"} {
				r := runCommand(t, l, name, node.Command{ID: "listen", Args: []string{"/proc/self/exe"}, Env: programEnv("listen")})
				if got := r.line(t); got != "listening" {
					t.Fatal(got)
				}
				listeners[name] = r
			}
			if r := runLab(t, l); !r.Passed {
				t.Fatalf("run %+v", r)
			}
			for name, r := range listeners {
				if err := l.Nodes.Signal(testContext(t), name, "listen", syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
				var longest, right, wrong, missed int
				if _, err := fmt.Sscan(r.line(t), &longest, &right, &wrong, &missed); err != nil {
					t.Fatal(err)
				}
				r.wait(t)
				if off := strings.HasPrefix(link, "offload: off"); off != (longest <= mtu+14) || off != (wrong == 0) || off && right+missed < 40*16 {
					t.Errorf("%s saw %d packets that are right and %d that are wrong, and missed %d; the longest had %d bytes", name, right, wrong, missed, longest)
				}
			}
		})
	}
}
