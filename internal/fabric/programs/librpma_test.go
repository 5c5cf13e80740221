package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// librpmaVariable names a folder with librpma's sources, of which the examples are run: Debian's packages are without.
const librpmaVariable = "NDKLAB_LIBRPMA"

// librpmaExamples are the folders of the examples, with the arguments of those that have any, as run-all-examples.sh has
// them. Their data is in any memory instead of persistent memory, which only those of GPSPM need.
var librpmaExamples = []struct {
	name, server, client string
	endless              bool
	holds                []claim
}{
	{name: "01-connection"},
	{name: "02-read-to-volatile", holds: []claim{clientPrints(`^Read a message: Hello client!`)}},
	{name: "03-read-to-persistent"},
	{name: "04-write-to-persistent"},
	{name: "05-flush-to-persistent"},
	{name: "06-multiple-connections", client: "8", endless: true},
	{name: "06scch-multiple-connections", client: "8", endless: true},
	{name: "07-atomic-write", client: "1st_word 2nd_word 3rd_word"},
	{name: "08-messages-ping-pong", client: "7 3"},
	{name: "08srq-simple-messages-ping-pong-with-srq", client: "7 3"},
	{name: "10-send-with-imm", client: "1234 1st_word"},
	{name: "11-write-with-imm", client: "1234"},
	{name: "12-receive-completion-queue", client: "7 3"},
	{name: "12scch-receive-completion-queue", client: "7 3"},
	{name: "13-messages-ping-pong-with-srq", server: "1", client: "1 3"},
}

// TestLibrpma runs the examples of librpma, with the library that is installed.
func TestLibrpma(t *testing.T) {
	fit(t)
	sources := os.Getenv(librpmaVariable)
	if sources == "" {
		t.Skip(librpmaVariable + " names no folder with librpma's sources")
	}
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	var pairs []pair
	for _, e := range librpmaExamples {
		if err := buildLibrpma(filepath.Join(sources, "examples"), e.name, folder); err != nil {
			t.Fatal(err)
		}
		p := pair{name: e.name, endless: e.endless, needs: "true", holds: e.holds}
		p.server = fmt.Sprintf("%s/%s.server SERVER 7204 %s", folder, e.name, e.server)
		p.client = fmt.Sprintf("%s/%s.client SERVER 7204 %s", folder, e.name, e.client)
		pairs = append(pairs, p)
	}
	runAll(t, plainLab(t), pairs)
}

// buildLibrpma compiles both ends of an example.
func buildLibrpma(examples, name, to string) error {
	var common []string
	for _, part := range []string{"conn", "epoll", "hello", "messages-ping-pong", "utils"} {
		common = append(common, filepath.Join(examples, "common", "common-"+part+".c"))
	}
	own, err := filepath.Glob(filepath.Join(examples, name, "*-common.c"))
	if err != nil {
		return err
	}
	var all error
	for _, end := range []string{"server", "client"} {
		args := append([]string{"-O2", "-I", filepath.Join(examples, "common"), "-o", filepath.Join(to, name+"."+end),
			filepath.Join(examples, name, end+".c")}, append(common, own...)...)
		if out, err := exec.Command("gcc", append(args, "-lrpma", "-libverbs")...).CombinedOutput(); err != nil {
			all = errors.Join(all, fmt.Errorf("gcc: %s of %s: %w: %s", end, name, err, out))
		}
	}
	return all
}
