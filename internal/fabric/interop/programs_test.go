package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node/verbs"
)

// Programs that nobody here wrote, as Debian ships them, and the cases of testdata/verbs, whose other end is the same
// program over rxe in the guest.
func TestPrograms(t *testing.T) {
	if os.Getenv("NDKLAB_INTEROP") == "" {
		t.Skip("needs a virtual machine: `make interop` runs this")
	}
	s := newSetting(t, "mtu: 4200, delay: 1ms", "", bySockets) // WRITEs go in packets of one length (internal/provider/rc/even.go)
	s.short = testing.Short()
	node, guest := s.node(t), s.foreign(t)
	node.cases, guest.cases = s.cases(t)
	for _, of := range []struct {
		name      string   // of the package that has the programs
		needs     []string // of these on this machine; the guest has its own
		exchanges []exchange
	}{
		{"verbs", nil, verbsCases},
		{"ibverbs-utils", []string{"ibv_rc_pingpong"}, ibverbsUtils},
		{"perftest", []string{"ib_send_bw"}, perftest},
		{"rdmacm-utils", []string{"rping"}, rdmacmUtils},
	} {
		t.Run(of.name, func(t *testing.T) {
			need.Check(t, need.Programs(of.needs...))
			s.exchanges(t, of.exchanges, node, guest)
		})
	}
	t.Run("counters", s.endured)
	t.Run("ICRC", func(t *testing.T) {
		seen := s.guest.captured(t)
		if t.Logf("%+v", seen); seen.apart == 0 {
			t.Error("the guest was sent no WRITE in packets of one length")
		}
	})
	t.Run("tshark", s.dissect)
}

// cases compiles testdata/verbs, and returns where the node and the guest have it.
func (s *setting) cases(t *testing.T) (node, guest string) {
	t.Helper()
	libraries := os.Getenv(verbs.FolderVariable)
	if libraries == "" {
		t.Fatalf("%s does not name the folder of the libraries: `make interop` sets it", verbs.FolderVariable)
	}
	sources, err := filepath.Glob("testdata/verbs/*.c")
	if err != nil {
		t.Fatal(err)
	}
	const name = "verbs"
	node = filepath.Join(t.TempDir(), name)
	cc := exec.Command("cc", append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I../../../verbs/lib", "-o", node},
		append(sources, filepath.Join(libraries, verbs.Ibverbs))...)...)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	script(t, time.Minute, "share", s.guest.name, node)
	return node, "/share/" + name
}

// The cases check what every request and completion has, down to the bytes.
var verbsCases = []exchange{
	{
		name: "IPv4", server: "CASES SERVER PORT", client: "CASES CLIENT PORT SERVER", brief: true,
		clientPrints: "^all cases pass$", serverPrints: "^all cases pass$",
	},
	{
		name: "IPv6", server: "CASES SERVER6 PORT", client: "CASES CLIENT6 PORT SERVER6", brief: true,
		clientPrints: "^all cases pass$", serverPrints: "^all cases pass$",
	},
}

// Those with -c compare what they receive.
var ibverbsUtils = func() (all []exchange) {
	for _, c := range []struct {
		command string
		brief   bool
	}{
		{"ibv_rc_pingpong -c -g GID", false},
		{"ibv_rc_pingpong -c -e -g GID", true},
		{"ibv_rc_pingpong -c -N -g GID", false},
		{"ibv_rc_pingpong -c -s 65536 -g GID6", false},
		{"ibv_uc_pingpong -c -g GID", true},
		{"ibv_uc_pingpong -c -e -g GID6", false},
		{"ibv_ud_pingpong -s 1024 -g GID", true},
		{"ibv_ud_pingpong -e -s 1024 -g GID6", false},
		{"ibv_srq_pingpong -c -g GID", false},
		{"ibv_srq_pingpong -c -e -g GID", true},
	} {
		command := c.command + " -n 100 -p PORT"
		all = append(all, exchange{
			name: c.command, server: command, client: command + " SERVER", brief: c.brief,
			clientPrints: `^100 iters in `, serverPrints: `^100 iters in `,
		})
	}
	return all
}()

// Of unreliable services so little is sent that it fits the receivers' buffers: what the programs lose they wait for in
// vain. Not both ends send on several queue pairs: where rxe of Linux 6.1 sends again, as it does on a slow machine, its
// packets have other PSNs than before at times, and are refused. Connections by librdmacm are made to the node alone: a
// client takes for granted that its server listens at once when both have agreed to connect, as one in the guest does
// not, and else uses memory that it has freed (perftest 4.5).
var perftest = func() (all []exchange) {
	for _, c := range []struct {
		command string
		brief   bool
	}{
		{"ib_send_bw -n 50", true},
		{"ib_send_bw -e -n 50", false},
		{"ib_send_bw -q 4 -n 20", false},
		{"ib_send_bw --use-srq -r 64 -q 2 -n 20", false},
		{"ib_send_bw -a -n 5", false},
		{"ib_send_lat -n 50", true},
		{"ib_send_lat -I 32 -s 32 -n 50", false},
		{"ib_write_bw -n 50", true},
		{"ib_write_bw -b -n 20", false},
		{"ib_write_lat -n 50", true},
		{"ib_read_bw -n 50", false},
		{"ib_read_bw -o 4 -n 50", false},
		{"ib_read_lat -n 50", true},
		{"ib_atomic_bw -n 50 -A FETCH_AND_ADD", false},
		{"ib_atomic_bw -n 50 -A CMP_AND_SWAP", false},
		{"ib_atomic_lat -n 50 -A FETCH_AND_ADD", true},
		{"ib_atomic_lat -n 50 -A CMP_AND_SWAP", false},
		{"ib_send_bw -c UC -s 2048 -n 20", true},
		{"ib_send_lat -c UC -n 50", false},
		{"ib_write_bw -c UC -s 2048 -n 20", true},
		{"ib_write_lat -c UC -n 50", false},
		{"ib_send_bw -c UD -s 1024 -n 20", true},
		{"ib_send_lat -c UD -n 50", false},
		{"ib_send_bw -R -n 20", true},
		{"ib_write_lat -R -n 20", false},
		{"ib_read_bw -R -n 20", false},
		{"ib_send_lat -R -c UD -n 20", false},
	} {
		command := c.command + " -F -p PORT -x GID"
		all = append(all, exchange{
			name: c.command, server: command, client: command + " SERVER", brief: c.brief,
			toNode:       strings.Contains(c.command, " -R "),
			clientPrints: `^ *\d+ +\d+ +\S+ +[0-9.]+`,
		})
	}
	return all
}()

// Those of rdmacm-utils that compare what they receive: rping with -V, rstream and riostream with -T v. Those with XRC
// are left out, as neither end has it, and udpong, which is for InfiniBand alone: its address handles have LIDs.
var rdmacmUtils = []exchange{
	{
		name: "rping", server: "rping -s -C 50 -S 65535 -a SERVER -p PORT", client: "rping -c -V -C 50 -S 65535 -a SERVER -p PORT", brief: true,
		serverPrints: `^server DISCONNECT EVENT`,
	},
	{
		name: "rping IPv6", server: "rping -s -C 50 -a SERVER6 -p PORT", client: "rping -c -V -C 50 -a SERVER6 -p PORT",
		serverPrints: `^server DISCONNECT EVENT`,
	},
	{
		name: "ucmatose", server: "ucmatose -c 50 -C 10 -p PORT", client: "ucmatose -c 50 -C 10 -s SERVER -p PORT", brief: true,
		clientPrints: `^return status 0$`, serverPrints: `^return status 0$`,
	},
	{
		name: "ucmatose migrates", server: "ucmatose -c 5 -m -p PORT", client: "ucmatose -c 5 -m -s SERVER -p PORT",
		clientPrints: `^return status 0$`, serverPrints: `^return status 0$`,
	},
	{
		name: "udaddy", server: "udaddy -c 5 -C 10", client: "udaddy -c 5 -C 10 -s SERVER", port: 7174, brief: true,
		clientPrints: `^return status 0$`, serverPrints: `^return status 0$`,
	},
	{
		name: "rdma_client", server: "rdma_server -p PORT", client: "rdma_client -s SERVER -p PORT", brief: true,
		clientPrints: `^rdma_client: end 0$`, serverPrints: `^rdma_server: end 0$`,
	},
	{
		name: "rdma_xclient", server: "rdma_xserver -p PORT", client: "rdma_xclient -s SERVER -p PORT",
		clientPrints: `^rdma_xclient: end 0$`, serverPrints: `^rdma_xserver: end 0$`,
	},
	{
		name: "cmtime", server: "cmtime -p PORT", client: "cmtime -c 50 -s SERVER -p PORT", endless: true,
		clientPrints: `^connect +: `,
	},
	{
		name: "rstream", server: "rstream -S 65536 -C 50 -T v -p PORT", client: "rstream -S 65536 -C 50 -T v -s SERVER -p PORT", brief: true,
		clientPrints: `^custom +64k +50 `, serverPrints: `^custom +64k +50 `,
	},
	{
		name: "rstream nonblocking", server: "rstream -S 1000 -C 100 -T n -p PORT", client: "rstream -S 1000 -C 100 -T n -s SERVER -p PORT",
		clientPrints: `^custom +1000 +100 `, serverPrints: `^custom +1000 +100 `,
	},
	{
		name: "riostream", server: "riostream -S 4096 -C 10 -I 10 -T v -p PORT", client: "riostream -S 4096 -C 10 -I 10 -T v -s SERVER -p PORT",
		clientPrints: `^custom +4k +10 `, serverPrints: `^custom +4k +10 `,
	},
	{
		name: "rcopy", server: "rcopy -p PORT", endless: true, brief: true,
		client:       "head -c 1000000 /dev/urandom >FOLDER/sent && rcopy FOLDER/sent SERVER:FILE -p PORT && sha256sum <FOLDER/sent",
		clientPrints: `^1000000 bytes in `,
		after:        "sha256sum <FILE && rm FILE",
	},
	// Both ends join and wait for 3 s before they send and receive.
	{
		name: "mckey", server: "mckey -m 239.1.2.3 -b SERVER", client: "mckey -s -m 239.1.2.3 -b CLIENT", ready: "ip maddr | grep -qw 239.1.2.3", brief: true,
		serverPrints: `^data transfers complete$`,
	},
}
