package programs

import (
	"os"
	"testing"

	"github.com/ndklab/ndklab/fabric/labtest"
)

// all has the whole of the tables run, not the short form.
var all = os.Getenv("NDKLAB_PROGRAMS") == "all"

// Programs of perftest with their options, the same at both ends. Of unreliable services so little is sent that it
// fits the receiver's buffer: what the programs lose they wait for in vain.
var perftest = []string{
	"ib_send_bw -n 200",
	"ib_send_lat -n 200",
	"ib_write_bw -n 200",
	"ib_write_lat -n 50",
	"ib_read_bw -n 200",
	"ib_read_lat -n 200",
	"ib_atomic_bw -n 200 -A FETCH_AND_ADD",
	"ib_atomic_lat -n 200 -A CMP_AND_SWAP",
	"ib_send_bw -c UC -s 4096 -n 100",
	"ib_send_lat -c UC -n 200",
	"ib_write_bw -c UC -n 100",
	"ib_send_bw -c UD -n 100",
	"ib_send_lat -c UD -n 200",
	"ib_send_bw -e -n 200",
	"ib_send_bw --use-srq -q 4 -n 100",
	"ib_send_bw -b -q 16 -n 50",
	apart + "ib_write_bw -n 200",
	apart + "ib_send_lat -n 200",
}

// The long form has these besides.
var perftestLong = []string{
	"ib_write_lat -c UC -n 200",
	"ib_send_lat -e -n 500",
	"ib_read_bw -e -n 500",
	"ib_read_lat -e -n 500",
	"ib_atomic_bw -e -n 500",
	"ib_atomic_lat -e -n 500",
	"ib_send_bw -c UD -e -n 200",
	"ib_send_lat -c UD -e -n 500",
	"ib_send_lat --use-srq -n 500",
	"ib_send_bw --use-srq -c UD -n 200",
	"ib_send_bw -b -n 500",
	"ib_write_bw -b -n 500",
	"ib_read_bw -b -n 500",
	"ib_atomic_bw -b -n 500",
	"ib_send_bw -b -c UD -n 200",
	"ib_write_bw -q 16 -n 200",
	"ib_read_bw -q 16 -n 200",
	"ib_atomic_bw -q 16 -n 200",
	"ib_send_bw -c UD -q 4 -n 50",
	"ib_send_bw -I 128 -s 64 -n 500",
	"ib_send_lat -I 128 -s 64 -n 500",
	"ib_write_lat -I 64 -s 64 -n 100",
	"ib_send_lat -c UD -I 64 -s 64 -n 500",
	"ib_send_bw -t 16 -r 16 -n 500",
	"ib_write_bw -t 1 -n 500",
	"ib_write_bw -t 512 -n 1000",
	"ib_read_bw -t 64 -o 4 -n 500",
	"ib_read_lat -o 1 -n 500",
	"ib_send_bw -r 600 -t 64 -Q 1 -n 500",
	"ib_write_bw -Q 10 -n 500",
	"ib_write_bw -l 8 -n 1024",
	"ib_send_bw -D 5",
	"ib_write_bw -D 5",
	"ib_read_bw -D 5",
	"ib_atomic_bw -D 5",
	"ib_send_lat -D 5",
	"ib_write_bw -c UC -D 5",
	"ib_send_bw -a -n 50",
	"ib_write_bw -a -n 50",
	"ib_read_bw -a -n 50",
	"ib_send_lat -a -n 20",
	"ib_read_lat -a -n 20",
	"ib_write_lat -a -n 20",
	"ib_send_bw -c UD -a -n 50",
	"ib_send_bw -m 1024 -n 500",
	"ib_write_bw -m 256 -n 500",
	"ib_send_bw -x 1 -n 500",
	"ib_send_bw -N -n 500",
	"ib_write_bw -S 3 -n 500",
	"ib_send_bw --inline_recv=64 -s 32 -n 100",
	"ib_send_bw --use_old_post_send -n 500",
}

// A line of figures, of one size.
const perftestFigures = `^ *\d+ +\d+ +\S+ +[0-9.]+`

func TestPerftest(t *testing.T) {
	fit(t)
	commands := perftest
	if all {
		commands = append(perftest, perftestLong...)
	}
	var pairs []pair
	for _, c := range commands {
		pairs = append(pairs, pair{name: c, server: c, client: c + " SERVER", holds: []claim{clientPrints(perftestFigures)}})
	}
	if all {
		pairs = append(pairs, pair{
			name: "killed", server: "ib_write_bw --run_infinitely -D 1; true",
			client: "timeout --foreground -s KILL 3 ib_write_bw --run_infinitely -D 1 SERVER; true",
			holds:  []claim{serverPrints(`remote address: `)}, // which ends with its client
		})
	}
	runAll(t, plainLab(t), pairs)
}

// plainLab is a server and a client on a link for packets of 4 KiB.
func plainLab(t *testing.T) *labtest.Lab {
	return labtest.Up(t, labtest.Topology().LinkDefaults(labtest.MTU(4200)).Hosts("server", "client").Link("server", "client"))
}
