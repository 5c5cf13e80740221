package programs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/need"
)

// Programs over librdmacm: those of rdmacm-utils, perftest with -R, and iperf over rsockets. rdma_xclient and
// rdma_xserver are tried without XRC. Of the others, udpong is for InfiniBand alone: its address handles have LIDs.
var overRDMACM = []pair{
	{
		name: "rping", server: "rping -s -v -C 100 -a SERVER", client: "rping -c -v -C 100 -a SERVER",
		holds: []claim{clientPrints(`^ping data: rdma-ping-99: `), serverPrints(`server ping data: rdma-ping-99: `)},
	},
	{
		name: "rping IPv6", server: "rping -s -C 100 -a SERVER6", client: "rping -c -v -V -C 100 -a SERVER6",
		holds: []claim{clientPrints(`^ping data: rdma-ping-99: `)},
	},
	{
		name: "rping persistent", server: "rping -s -P -a SERVER",
		client:  "for size in 64 1000 65535; do rping -c -V -C 20 -S $size -a SERVER || exit; done",
		endless: true, needs: "rping",
	},
	{
		name: "ucmatose", server: "ucmatose -c 100 -C 20", client: "ucmatose -c 100 -C 20 -s SERVER",
		holds: []claim{clientPrints(`^return status 0$`), serverPrints(`^return status 0$`)},
	},
	{
		name: "ucmatose migrates", server: "ucmatose -c 5 -m", client: "ucmatose -c 5 -m -s SERVER",
		holds: []claim{clientPrints(`^return status 0$`), serverPrints(`^return status 0$`)},
	},
	{
		name: "rdma_client", server: "rdma_server", client: "rdma_client -s SERVER",
		holds: []claim{clientPrints(`^rdma_client: end 0$`), serverPrints(`^rdma_server: end 0$`)},
	},
	{
		name: "rdma_xclient", server: "rdma_xserver", client: "rdma_xclient -s SERVER",
		holds: []claim{clientPrints(`^rdma_xclient: end 0$`), serverPrints(`^rdma_xserver: end 0$`)},
	},
	{
		name: "cmtime", server: "cmtime", client: "cmtime -c 200 -s SERVER", endless: true,
		holds: []claim{clientPrints(`^connect +: `)},
	},
	{
		name: "udaddy", server: "udaddy -c 5 -C 20", client: "udaddy -c 5 -C 20 -s SERVER",
		holds: []claim{clientPrints(`^return status 0$`), serverPrints(`^return status 0$`)},
	},
	// Both ends join and wait for 3 s before they send and receive.
	{
		name: "mckey", server: "stdbuf -oL mckey -m 239.1.2.3 -b SERVER", client: "mckey -s -m 239.1.2.3 -b CLIENT",
		ready: `(?m)^mckey: joined`, holds: []claim{serverPrints(`^data transfers complete$`)},
	},
	{
		name: "mckey IPv6", server: "stdbuf -oL mckey -m ff0e::1:2 -b SERVER6", client: "mckey -s -m ff0e::1:2 -b CLIENT6",
		ready: `(?m)^mckey: joined`, holds: []claim{serverPrints(`^data transfers complete$`)},
	},
	{
		name: "rstream", server: "rstream -S 65536 -C 200 -T v", client: "rstream -S 65536 -C 200 -T v -s SERVER",
		holds: []claim{clientPrints(`^custom +64k +200 `)},
	},
	{
		name: "rstream nonblocking", server: "rstream -S 1000 -C 1000 -T n", client: "rstream -S 1000 -C 1000 -T n -s SERVER",
		holds: []claim{clientPrints(`^custom +1000 +1k `)},
	},
	{
		name: "rstream resolves", server: "rstream -S 64 -C 100 -T r", client: "rstream -S 64 -C 100 -T r -s SERVER",
		holds: []claim{clientPrints(`^custom +64 +100 `)},
	},
	{
		name: "riostream", server: "riostream -S 4096 -C 10 -I 10 -T v", client: "riostream -S 4096 -C 10 -I 10 -T v -s SERVER",
		holds: []claim{clientPrints(`^custom +4k +10 `)},
	},
	{
		name: "rcopy", server: "rcopy", endless: true,
		client: `head -c 3000000 /dev/urandom >"$WORK/sent" && rcopy "$WORK/sent" "SERVER:$WORK/received" && cmp "$WORK/sent" "$WORK/received"`,
		holds:  []claim{clientPrints(`^3000000 bytes in `)},
	},
	{
		name: "iperf over rsockets", server: preload + " iperf -s", client: preload + " iperf -n 10M -c SERVER", endless: true, needs: "iperf",
		holds: []claim{clientPrints(`10\.\d MBytes`)},
	},
	{
		name: "iperf over rsockets, the engine apart", server: apart + preload + " iperf -s", client: apart + preload + " iperf -n 10M -c SERVER",
		endless: true, needs: "iperf",
		holds: []claim{clientPrints(`10\.\d MBytes`)},
	},
	{
		name: "rping, the engine apart", server: apart + "rping -s -v -C 100 -a SERVER", client: apart + "rping -c -v -C 100 -a SERVER",
		holds: []claim{clientPrints(`^ping data: rdma-ping-99: `), serverPrints(`server ping data: rdma-ping-99: `)},
	},
}

// apart has the engine be in a process of its own.
const apart = "NDKLAB_RNIC=process "

// preload has a program for TCP use rsockets (rsocket(7)).
const preload = "LD_PRELOAD=$(ls -d /usr/lib/*/rsocket/librspreload.so /usr/lib64/rsocket/librspreload.so 2>/dev/null)"

// perftestRDMACM is perftest's programs, connected by librdmacm.
var perftestRDMACM = func() (pairs []pair) {
	for _, command := range []string{
		"ib_send_bw", "ib_send_bw -c UD", "ib_send_bw -b -q 4", "ib_send_bw -e", "ib_send_bw -r 64 --use-srq", "ib_send_bw -a",
		"ib_send_lat", "ib_send_lat -c UD", "ib_send_lat -e",
		"ib_write_bw", "ib_write_bw -q 8 -s 4096", "ib_write_bw -D 1", "ib_write_lat",
		"ib_read_bw", "ib_read_bw -o 4", "ib_read_lat", "ib_atomic_bw", "ib_atomic_bw -A CMP_AND_SWAP", "ib_atomic_lat",
	} {
		command += " -R"
		if !strings.Contains(command, "-D") {
			command += " -n 100"
		}
		pairs = append(pairs, pair{
			name: command, server: command, client: command + " SERVER",
			holds: []claim{clientPrints(`^ (\d+) +\d+ +\d+\.\d+ `)},
		})
	}
	return pairs
}()

func TestRDMACM(t *testing.T) {
	fit(t)
	runAll(t, labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client", labtest.MTU(4200))), overRDMACM)
}

func TestPerftestRDMACM(t *testing.T) {
	fit(t)
	runAll(t, labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client", labtest.MTU(4200))), perftestRDMACM)
}

// Reliable connections, and what establishes them, do not mind a bad link.
func TestRDMACMOverBadLink(t *testing.T) {
	fit(t)
	l := labtest.Up(t, labtest.Topology().Seed(1).Hosts("server", "client").
		Link("server", "client", labtest.MTU(4200), labtest.Delay(5*time.Millisecond), labtest.Loss(0.01)))
	var reliable []pair
	for _, p := range overRDMACM {
		if !strings.HasPrefix(p.name, "mckey") && !strings.HasPrefix(p.name, "udaddy") && !strings.HasPrefix(p.name, "iperf") {
			reliable = append(reliable, p)
		}
	}
	runAll(t, l, reliable)
}

// An end whose peer is killed learns of it, and ends. Those of the programs are tried that listen to events or send:
// who only receives learns nothing of the peer's death.
func TestKilled(t *testing.T) {
	fit(t)
	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client"))
	for i, p := range []pair{
		{name: "rping", server: "rping -s -a SERVER", client: "rping -c -a SERVER"},
		{name: "ib_send_bw", server: "ib_send_bw -R -b -D 600", client: "ib_send_bw -R -b -D 600 SERVER"},
		{name: "ib_write_bw", server: "ib_write_bw -R -b -D 600", client: "ib_write_bw -R -b -D 600 SERVER"},
	} {
		if testing.Short() && i%shortForm > 0 {
			continue
		}
		for _, dies := range []string{"server", "client"} {
			t.Run(fmt.Sprintf("%s of %s", dies, p.name), func(t *testing.T) {
				need.Check(t, p.installed())
				p.kill(t, l.In(t), dies)
			})
		}
	}
}
