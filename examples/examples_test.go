// Package examples_test runs the examples as their documentation says: programs
// that `ndklab exec` starts in the nodes of a lab that `ndklab up` made.
package examples_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
)

// bin is the folder with ndklab and the examples.
var bin string

func TestMain(m *testing.M) {
	doctor.Child()
	os.Exit(built.Main(m, &bin, "../cmd/ndklab", "./..."))
}

// An account is a user who runs ndklab.
type account struct {
	name       string
	credential *syscall.Credential // nil: who runs the test
	env        []string
	folder     string // where it runs programs; else where they are
}

// accounts are all that the test can be.
func accounts(t *testing.T) []account {
	if os.Geteuid() != 0 {
		return []account{{name: "ordinary user"}}
	}
	return []account{
		{name: "root"},
		{name: "nobody", credential: nobody.Credential(), env: nobody.Environment(nobody.Home(t))},
	}
}

// patience bounds whatever a test waits for.
const patience = time.Minute

// A process is one that runs until the test ends at the latest.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	out     *bufio.Reader
	printed strings.Builder // so far
	errors  bytes.Buffer    // what it says to standard error; complete when it has ended
}

func (a *account) start(t *testing.T, command string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &process{t: t, cmd: exec.CommandContext(ctx, filepath.Join(bin, command), args...)}
	p.cmd.Dir = cmp.Or(a.folder, bin)
	p.cmd.Env = append(os.Environ(), a.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// line is the next line that the process prints.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	p.printed.WriteString(line)
	if err != nil {
		p.end()
		p.t.Fatalf("%v: %v\n%s%s", p.cmd.Args, err, &p.printed, &p.errors)
	}
	return strings.TrimSuffix(line, "\n")
}

// end waits for the end of the process, and returns its exit code.
func (p *process) end() int {
	p.t.Helper()
	if _, err := p.out.WriteTo(&p.printed); err != nil {
		p.t.Error(err)
	}
	var status *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &status) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends is end for a process that must end with a code, and print lines that
// match want, and to standard error what matches wantError.
func (p *process) ends(code int, wantError string, want ...string) {
	p.t.Helper()
	if got := p.end(); got != code {
		p.t.Errorf("%v: exit code %d, want %d", p.cmd.Args, got, code)
	}
	if ok := regexp.MustCompile(`^` + strings.Join(append(want, "$"), `\n`)).MatchString(p.printed.String()); !ok {
		p.t.Errorf("%v printed\n%s", p.cmd.Args, &p.printed)
	}
	if ok := regexp.MustCompile(`(?s)^` + wantError + `$`).MatchString(p.errors.String()); !ok {
		p.t.Errorf("%v printed to standard error\n%s", p.cmd.Args, &p.errors)
	}
}

// A lab is one of examples/pair.ndklab.yaml.
type lab struct {
	t    *testing.T
	user *account
	name string
}

// up has the user build a lab, in whose topology edit replaces text.
func up(t *testing.T, user *account, edit ...string) *lab {
	t.Helper()
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	topology, err := os.ReadFile("pair.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t, user, fmt.Sprintf("x%d-%d", os.Getpid(), time.Now().UnixNano())}
	for i := 0; i < len(edit); i += 2 {
		if !bytes.Contains(topology, []byte(edit[i])) {
			t.Fatalf("the topology has no %q", edit[i])
		}
	}
	text := strings.NewReplacer(append(edit, "\nname: pair\n", "\nname: "+l.name+"\n")...).Replace(string(topology))
	file := filepath.Join(bin, l.name+".ndklab.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l.user.start(t, "ndklab", "up", file).ends(0, ".*", "lab .*")
	t.Cleanup(func() { l.user.start(t, "ndklab", "down", l.name).ends(0, ".*") })
	return l
}

// exec runs a command in a node.
func (l *lab) exec(node string, command ...string) *process {
	l.t.Helper()
	return l.user.start(l.t, "ndklab", append([]string{"exec", l.name + "/" + node, "--"}, command...)...)
}

// listen starts a server and waits until it listens.
func (l *lab) listen(program string, at netip.AddrPort) *process {
	l.t.Helper()
	p := l.exec("server", "./"+program, "-listen", at.String())
	if line := p.line(); !strings.HasPrefix(line, "listening at "+at.String()) {
		l.t.Fatal(line)
	}
	return p
}

// The server's addresses.
var (
	overIPv4 = netip.MustParseAddrPort("10.0.0.2:7174")
	overIPv6 = netip.MustParseAddrPort("[fd6e:646b:1::2]:7174")
)

// TestExamples has every program do what its documentation says, for every
// account, over both families and over a bad link.
func TestExamples(t *testing.T) {
	for _, user := range accounts(t) {
		for _, link := range []struct {
			name   string
			server netip.AddrPort
			edit   []string
		}{
			{"IPv4", overIPv4, nil},
			{"IPv6", overIPv6, nil},
			{"loss", overIPv4, []string{"loss: 0.1% ", "loss: 1% "}},
		} {
			t.Run(user.name+" "+link.name, func(t *testing.T) {
				if os.Geteuid() == 0 && (user.credential != nil) != (link.name == "IPv6") { // else root has IPv4, and the other user IPv6
					need.Time(t)
				}
				t.Parallel()
				l := up(t, &user, link.edit...)
				for _, e := range expectations(link.server) {
					server := l.listen(e.program, link.server)
					client := l.exec("client", append([]string{"./" + e.program, "-connect", link.server.String()}, e.args...)...)
					client.ends(e.code, e.clientError, e.client...)
					if e.program == "srq" { // whose server goes on
						server.interrupt()
					}
					server.ends(e.code, e.serverError, e.server...)
				}
			})
		}
	}
}

// An expectation describes the output of a program, as regular expressions.
type expectation struct {
	program                  string
	args                     []string // of the client, besides -connect
	client, server           []string // lines
	code                     int      // of both
	clientError, serverError string
}

func expectations(server netip.AddrPort) []expectation {
	const token = `0x[0-9a-f]+`
	// Either of the two may overtake the other.
	const refused = `(STATUS_REMOTE_RESOURCES|the connection has ended)`
	ip := `10\.0\.0\.1`
	if server.Addr().Is6() {
		ip = `\[fd6e:646b:1::1\]`
	}
	from := ip + `:\d+`
	at := regexp.QuoteMeta(server.String())
	listening := "listening at " + at
	port := func(i uint16) string {
		return regexp.QuoteMeta(netip.AddrPortFrom(server.Addr(), server.Port()+i).String())
	}

	var clients, blocks []string
	for range 32 {
		clients = append(clients, from+": 50 messages")
	}
	for i := range 8 {
		next := (i + 1) % 8
		blocks = append(blocks, fmt.Sprintf(`block %d: sent from pages %d-%d under token %s, received into pages %d-%d under token %s`,
			i, 4*i, 4*i+3, token, 4*next, 4*next+3, token))
	}
	return []expectation{
		{
			program: "consumer", args: []string{"-rounds", "3"},
			client: []string{"connected with " + at + ": borrowed 65536 bytes at 0x0 under token " + token,
				"wrote 65536 bytes and read them back, inverted, in each of 3 rounds"},
			server: []string{listening, "connected with " + from + ": lent 65536 bytes at 0x0 under token " + token,
				"received 65536 bytes in each of 3 rounds, all as expected"},
		},
		{
			program: "fastregister",
			client:  append(blocks[:8:8], "wrote 8 blocks of 16384 bytes and read them back"),
			server:  []string{listening, "wrote 8 blocks and read 8"},
		},
		{
			program: "fastregister", args: []string{"-stale"},
			client: blocks, clientError: "fastregister: token " + token + " has ended: the connection has ended\n",
			server: []string{listening}, serverError: "fastregister: access the client's memory under token " + token + ": read from " + from + ": " + refused + "\n",
			code: 1,
		},
		{
			program: "window",
			client:  []string{"read page 1 under token " + token, "wrote page 2 under token " + token, "refused one byte further: write to " + at + ": " + refused},
			server: []string{listening, "page 1 can be read under token " + token, "page 2 can be written under token " + token,
				"page 2 is written, and no other"},
		},
		{
			program: "srq", args: []string{"-clients", "32", "-messages", "50"},
			client: []string{"32 clients: 1600 messages answered"},
			server: append(append([]string{listening}, clients...), `32 clients, 1600 messages, refilled [1-9]\d* times`),
		},
		{
			program: "sharedendpoint",
			client: []string{"connecting from " + from, at + " sees " + from, port(1) + " sees " + from, port(2) + " sees " + from,
				"a second connection: dial " + at + ": there is such a connection already: STATUS_ADDRESS_ALREADY_EXISTS"},
			server: []string{listening + " and the next 2 ports", at + " is connected with " + from,
				port(1) + " is connected with " + from, port(2) + " is connected with " + from},
		},
	}
}

// interrupt is Ctrl-C.
func (p *process) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Error(err)
	}
}

// TestManyClients: one server, and several processes with clients at once.
func TestManyClients(t *testing.T) {
	user := accounts(t)[0]
	l := up(t, &user)
	server := l.listen("srq", overIPv4)
	var clients []*process
	for range 4 {
		clients = append(clients, l.exec("client", "./srq", "-connect", overIPv4.String(), "-clients", "4", "-messages", "20"))
	}
	for _, c := range clients {
		c.ends(0, "", "4 clients: 80 messages answered")
	}
	server.interrupt()
	server.ends(0, "", "listening at .*", `(10\.0\.0\.1:\d+: 20 messages\n){15}10\.0\.0\.1:\d+: 20 messages`,
		`16 clients, 320 messages, refilled \d+ times`)
}

// gone ends the error of an end whose peer has ended.
const gone = "the connection has ended\n"

// TestServerKilled: the client of a server that dies says so and fails.
func TestServerKilled(t *testing.T) {
	for _, user := range accounts(t) {
		t.Run(user.name, func(t *testing.T) {
			l := up(t, &user)
			server := l.exec("server", "sh", "-c", "echo $$; exec ./consumer -listen "+overIPv4.String())
			pid := server.line()
			if _, err := strconv.Atoi(pid); err != nil {
				t.Fatal(err)
			}
			server.line()
			client := l.exec("client", "./consumer", "-connect", overIPv4.String(), "-rounds", "1000000000")
			client.line()
			l.exec("server", "kill", "-9", pid).ends(0, "")
			killed := time.Now()
			client.ends(1, `consumer: round \d+: \S.*: `+gone, "connected with .*")
			t.Logf("the client ended after %v", time.Since(killed))
			server.ends(128+int(syscall.SIGKILL), "", pid, "listening at .*", "connected with .*")
		})
	}
}

// TestInterrupted: Ctrl-C ends both ends, whatever they wait for.
func TestInterrupted(t *testing.T) {
	user := accounts(t)[0]
	l := up(t, &user)
	const interrupted = ".*interrupt signal received\n"
	for _, program := range []string{"consumer", "fastregister", "window", "sharedendpoint"} {
		server := l.listen(program, overIPv4)
		server.interrupt()
		server.ends(1, program+": "+interrupted, "listening at .*")
	}
	server := l.listen("consumer", overIPv4)
	client := l.exec("client", "./consumer", "-connect", overIPv4.String(), "-rounds", "1000000000")
	client.line()
	client.interrupt()
	client.ends(1, "consumer: round "+interrupted, "connected with .*")
	server.ends(1, "consumer: .*: "+gone, "listening at .*", "connected with .*")
}

// TestMistakes: messages say what to do.
func TestMistakes(t *testing.T) {
	user := accounts(t)[0]
	l := up(t, &user)
	at := overIPv4.String()
	for _, program := range []string{"consumer", "fastregister", "window", "srq", "sharedendpoint"} {
		for _, args := range [][]string{nil, {"-listen", at, "-connect", at}, {"-listen", at, "more"}, {"-listen", "nowhere"}, {"-nonsense"}} {
			user.start(t, program, args...).ends(2, ".*(usage|Usage).*-connect address:port.*")
		}
		user.start(t, program, "-listen", at).ends(1, program+": open adapter: there is none here: .*`ndklab exec LAB/NODE -- PROGRAM`\n")
		l.exec("server", "./"+program, "-listen", "10.9.9.9:7174").
			ends(1, program+": listen at 10.9.9.9:7174: the adapter does not have the local address: STATUS_INVALID_ADDRESS\n")
		printed := []string{}
		if program == "sharedendpoint" {
			printed = append(printed, "connecting from .*")
		}
		l.exec("client", "./"+program, "-connect", at).
			ends(1, program+": dial "+at+": nobody listens there, or the peer refuses: STATUS_CONNECTION_REFUSED\n", printed...)
	}
}

// TestOwnModule builds an example as a program of somebody else's module.
func TestOwnModule(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	module := "module example.com/consumer\n\ngo 1.26\n\nrequire github.com/ndklab/ndklab v0.0.0\n\n" +
		"replace github.com/ndklab/ndklab => " + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"../go.sum": "go.sum", "consumer/main.go": "main.go"} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"vet", "."}, {"build", "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		// The modules that it takes are there, since this test needed them, too.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
}
