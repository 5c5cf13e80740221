package hosts

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/need"
)

// sshd is the path that Debian's openssh-server has. It starts itself again, and so needs the whole path.
const sshd = "/usr/sbin/sshd"

// sshClient tells the client of the tests of its hosts: one of their ports leads to a server whose commands find no
// ndklab, one to a server that has another build of it, and one nowhere.
const sshClient = `Host host1
	HostName 10.57.0.1
Host host2
	HostName 10.57.0.2
Host bare
	HostName 10.57.0.2
	Port 23
Host other
	HostName 10.57.0.2
	Port 24
Host closed
	HostName 10.57.0.2
	Port 25
Host strange
	HostName 10.57.0.2
	HostKeyAlias strange
Host *
	HostKeyAlias known
`

// withSSH gives the hosts of a cluster servers of ssh, which take the key of the user at ctl.
func (c *cluster) withSSH(t *testing.T, token string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	own := build()
	at := bytes.Index(program, []byte(own))
	if own == "" || at < 0 || bytes.Index(program[:at], []byte(elf.ELFMAG)) != 0 {
		t.Fatalf("this program has no build ID %q", own)
	}
	other := append([]byte("A"), own[1:]...)
	if own[0] == 'A' {
		other[0] = 'B'
	}
	file := func(name string, data []byte, mode os.FileMode) string {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	same := filepath.Dir(file("same/ndklab", program, 0o755))
	another := filepath.Dir(file("another/ndklab", bytes.Replace(program, []byte(own), other, 1), 0o755))
	for _, key := range []string{"user", "host"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(c.dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config := file("client", []byte(sshClient), 0o644)
	// The home of root is the machine's; the hosts have one of their own above it.
	for _, host := range []string{"ctl", "host1", "host2"} {
		steps := `mount -t tmpfs -o mode=700 root /root; mkdir -m 700 /root/.ssh; mkdir -p /run/sshd; cd ` + c.dir + `; cp user.pub /root/.ssh/authorized_keys; cp user /root/.ssh/id_ed25519; cp ` + config + ` /root/.ssh/config
			echo "known $(cat host.pub)" >/root/.ssh/known_hosts`
		if host != "ctl" {
			serve := "\n" + sshd + " -f /dev/null -h " + c.dir + "/host -o PidFile=none -o UsePAM=no -o StrictModes=no "
			for port, path := range map[string]string{"22": same, "23": "/usr/bin", "24": another} {
				steps += serve + "-p " + port + " -o 'SetEnv PATH=" + path + ":/usr/bin:/bin " + token + "'"
			}
		}
		if out, err := c.on(host, "sh", "-ec", steps).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", host, err, out)
		}
	}
}

// TestSSHD: hosts that are named come by ssh and end, and what is wrong with one is told with its name and a remedy.
func TestSSHD(t *testing.T) {
	need.Check(t, need.Programs(sshd, "ssh", "ssh-keygen"))
	c := newCluster(t)
	token := "NDKLAB_TEST_TOKEN=" + filepath.Base(c.dir) + "ssh"
	c.withSSH(t, token)
	t.Run("end", func(t *testing.T) {
		r := c.startedAs(t, token, "host1,host2")
		r.kill(t, "head", unix.SIGTERM)
		if log := r.awaitEnd(t); log != "" {
			t.Errorf("said\n%s\nwant nothing", log)
		}
	})
	for _, k := range []struct{ role, want string }{
		{"head", ""}, {"part", "host host"}, {"worker", "is gone: its process has ended"}, {"ssh", "host host1: signal: killed"},
	} {
		t.Run(k.role, func(t *testing.T) {
			r := c.startedAs(t, token, "host1,host2")
			r.kill(t, k.role, unix.SIGKILL)
			if log := r.awaitEnd(t); !strings.Contains(log, k.want) {
				t.Errorf("said\n%s\nwant %s", log, k.want)
			}
		})
	}
	for _, k := range []struct{ host, want string }{
		{"bare", "ndklab: command not found: install this build of ndklab there, in the PATH of commands by ssh"},
		{"other", "host other runs another build of ndklab"},
		{"closed", "host closed: exit status 255: ssh: connect to host 10.57.0.2 port 25: Connection refused: `ssh -o BatchMode=yes HOST ndklab worker` has to work without a password"},
		{"strange", "Host key verification failed.: `ssh -o BatchMode=yes HOST ndklab worker` has to work without a password"},
	} {
		t.Run(k.host, func(t *testing.T) {
			if log := c.startedAs(t, token, "host1,"+k.host).awaitEnd(t); !strings.Contains(log, k.want) {
				t.Errorf("said\n%s\nwant %s", log, k.want)
			}
		})
	}
}
