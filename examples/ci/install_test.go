package ci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// Programs have paths, by their names.
type programs func(name string) string

// A release has, of each architecture, the programs of its archive.
type release struct {
	amd64, arm64 programs
	wrong        bool // the checksums are others'
}

// build builds the programs that archives of a release have.
func build(t *testing.T) programs {
	t.Helper()
	folder := t.TempDir()
	build := exec.Command("go", "build", "-o", folder, "./cmd/...")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return func(name string) string { return filepath.Join(folder, name) }
}

// archive returns an archive as package release writes it: all is in a folder of the archive's name.
func archive(t *testing.T, folder string, of programs) []byte {
	t.Helper()
	var content bytes.Buffer
	zip, err := gzip.NewWriterLevel(&content, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	out := tar.NewWriter(zip)
	for _, name := range []string{"ndklab", "ndklab-monitor"} {
		program, err := os.ReadFile(of(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := out.WriteHeader(&tar.Header{Name: folder + "/" + name, Mode: 0o755, Size: int64(len(program))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(program); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []func() error{out.Close, zip.Close} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	return content.Bytes()
}

// serve serves releases as GitHub does, where latest leads to another address, and returns theirs.
func serve(t *testing.T, releases map[string]release, latest string) (address string) {
	t.Helper()
	files := make(map[string][]byte)
	for version, r := range releases {
		var sums bytes.Buffer
		for arch, of := range map[string]programs{"amd64": r.amd64, "arm64": r.arm64} {
			if of == nil {
				continue
			}
			folder := fmt.Sprintf("ndklab_%s_linux_%s", strings.TrimPrefix(version, "v"), arch)
			content := archive(t, folder, of)
			files["/download/"+version+"/"+folder+".tar.gz"] = content
			if r.wrong {
				content = nil
			}
			fmt.Fprintf(&sums, "%x  %s.deb\n%x  %s.tar.gz\n", sha256.Sum256(nil), folder, sha256.Sum256(content), folder)
		}
		files["/download/"+version+"/SHA256SUMS"] = sums.Bytes()
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if file, isLatest := strings.CutPrefix(r.URL.Path, "/latest/download/"); isLatest && latest != "" {
			http.Redirect(w, r, "/download/"+latest+"/"+file, http.StatusFound)
			return
		}
		content, isThere := files[r.URL.Path]
		if !isThere {
			http.NotFound(w, r)
			return
		}
		if _, err := w.Write(content); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// saying returns programs that print a text.
func saying(t *testing.T, text string) programs {
	t.Helper()
	folder := t.TempDir()
	program := "#!/bin/sh\necho '" + text + "'\n"
	write(t, folder, map[string]string{"ndklab": program, "ndklab-monitor": program})
	return func(name string) string { return filepath.Join(folder, name) }
}

// tools returns a folder with links to what install.sh runs, and to one program that fetches, for a PATH that has no others.
func tools(t *testing.T, fetches string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range append(strings.Fields(fetches), "sh", "grep", "gzip", "mkdir", "mktemp", "rm", "sha256sum", "tail", "tar") {
		need.Check(t, need.Programs(name))
		found, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(found, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// The script installs the release that is meant for the machine that it is, or names what is wrong and what to do.
func TestInstallScript(t *testing.T) {
	of := func(text string) release {
		return release{amd64: saying(t, text+" amd64"), arm64: saying(t, text+" arm64")}
	}
	one, other := of("v1.2.0"), of("v1.3.0-rc.1")
	releases := serve(t, map[string]release{"v1.2.0": one, "v1.3.0-rc.1": other, "v1.4.0": {amd64: one.amd64}}, "v1.2.0")
	none := serve(t, nil, "")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	const expected = "expected latest, or a version such as v1.2.0"
	for _, c := range []struct {
		name, version, ref, machine, releases, fetches string
		code                                           int
		want                                           string // of what is installed, or of the error
	}{
		{name: "latest", version: "latest", want: "v1.2.0 amd64"},
		{name: "with v", version: "v1.3.0-rc.1", want: "v1.3.0-rc.1 amd64"},
		{name: "without v", version: "1.3.0-rc.1", want: "v1.3.0-rc.1 amd64"},
		{name: "of the ref", ref: "v1.3.0-rc.1", want: "v1.3.0-rc.1 amd64"},
		{name: "of a branch", ref: "main", want: "v1.2.0 amd64"},
		{name: "of a commit", ref: "7f3339e8f2b1c5d7a9e00b6f4c3d2a1908f7e6d5", want: "v1.2.0 amd64"},
		{name: "of no ref", want: "v1.2.0 amd64"},
		{name: "before the ref", version: "v1.2.0", ref: "v1.3.0-rc.1", want: "v1.2.0 amd64"},
		{name: "arm64", machine: "Linux aarch64", want: "v1.2.0 arm64"},
		{name: "wget", fetches: "wget", want: "v1.2.0 amd64"},
		{name: "no such version", version: "v9.9.9", code: 2,
			want: "ndklab: there is no release v9.9.9: nothing is at " + releases + "/download/v9.9.9/SHA256SUMS, expected a version that " + releases + " has\n"},
		{name: "no such version for wget", version: "v9.9.9", fetches: "wget", code: 2, want: "ndklab: there is no release v9.9.9: "},
		{name: "no release", releases: none, code: 2, want: "ndklab: there is no release latest: nothing is at " + none + "/latest/download/SHA256SUMS, "},
		{name: "no version", version: "main", code: 2, want: "ndklab: main is no version, " + expected + "\n"},
		{name: "a command", version: "v1.2.0;touch x", code: 2, want: "ndklab: the version v1.2.0;touch x has characters that no version has, " + expected + "\n"},
		{name: "another folder", version: "../1.2.0", code: 2, want: "ndklab: the version ../1.2.0 has characters that no version has, " + expected + "\n"},
		{name: "no archive", version: "v1.4.0", machine: "Linux aarch64", code: 3,
			want: "ndklab: the release v1.4.0 has no archive for linux arm64: " + releases + "/download/v1.4.0/SHA256SUMS lists none\n"},
		{name: "another machine", machine: "Linux riscv64", code: 3,
			want: "ndklab: there is no release for this machine, Linux riscv64, expected Linux on x86_64 or aarch64: choose another runner\n"},
		{name: "another system", machine: "Darwin arm64", code: 3, want: "ndklab: there is no release for this machine, Darwin arm64, "},
		{name: "no network", releases: closed.URL, code: 3, want: "ndklab: " + closed.URL + "/latest/download/SHA256SUMS cannot be fetched: curl: (7) "},
		{name: "no network for wget", releases: closed.URL, fetches: "wget", code: 3, want: "ndklab: " + closed.URL + "/latest/download/SHA256SUMS cannot be fetched: "},
		{name: "no program", fetches: " ", code: 3,
			want: "ndklab: neither curl nor wget is here to fetch " + releases + "/latest/download/SHA256SUMS: install one of them in the image or on the runner\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			if c.machine == "" {
				c.machine = "Linux x86_64"
			}
			if c.releases == "" {
				c.releases = releases
			}
			if c.fetches == "" {
				c.fetches = "curl"
			}
			system, processor, _ := strings.Cut(c.machine, " ")
			write(t, folder, map[string]string{
				"path/uname":     "#!/bin/sh\n[ $1 = -s ] && echo " + system + " || echo " + processor + "\n",
				"into/earlier":   "of another version",
				"temp/elsewhere": "",
			})
			install := exec.Command("sh", path(t, filepath.Join(filepath.Dir(templateFile), "install.sh")))
			install.Dir = folder
			install.Env = []string{"PATH=" + folder + "/path:" + tools(t, c.fetches), "TMPDIR=" + folder + "/temp", "INTO=" + folder + "/into", "RELEASES=" + c.releases,
				"INPUT_VERSION=" + c.version, "GITHUB_ACTION_PATH=/runner/_actions/ndklab/ndklab/" + c.ref}
			out, err := install.CombinedOutput()
			if code := install.ProcessState.ExitCode(); code != c.code {
				t.Fatalf("the exit code is %d, want %d: %v\n%s", code, c.code, err, out)
			}
			if left, err := os.ReadDir(filepath.Join(folder, "temp")); err != nil || len(left) != 1 {
				t.Errorf("it leaves %v, %v", left, err)
			}
			if c.code != 0 {
				if !strings.HasPrefix(string(out), c.want) {
					t.Errorf("it says %q, want %q", out, c.want)
				}
				return
			}
			said, err := exec.Command(filepath.Join(folder, "into", "ndklab")).Output()
			if err != nil || string(said) != c.want+"\n" {
				t.Errorf("what is installed says %q, %v; want %q", said, err, c.want)
			}
			if _, err := os.Stat(filepath.Join(folder, "into", "earlier")); err == nil {
				t.Error("what was there before is there still")
			}
		})
	}
}

// fakes are programs in place of ndklab, which prints its arguments, sudo, id and chown. WHO runs the script, and MAY is who
// may run labs. Sudo takes variables away, and has a PATH of its own.
var fakes = map[string]string{
	"path/tool": "",
	"path/ndklab": `#!/bin/sh
[ "$1" != doctor ] || { [ "${AS:-$WHO}" = "$MAY" ] && exit 0 || { echo "remedy: be $MAY"; exit 3; }; }
command -v tool >/dev/null || echo "PATH is another"
printf '%s\n' "${AS:-$WHO}" "$SUITE_VARIABLE" "$@"
exit 1
`,
	"base/sudo": `#!/bin/sh
[ "$SUDO" = yes ] || exit 1
[ "$1" = -n ] || exit 1
shift
if [ "$1" = -E ]; then shift; else SUITE_VARIABLE=; fi
PATH=${PATH#*/path:}
AS=root exec "$@"
`,
	"base/id":    "#!/bin/sh\n[ $WHO = root ] && echo 0 || echo 1000\n",
	"base/chown": "#!/bin/sh\necho \"$AS $@\" >chown.txt\n",
	"b":          "",
}

// The script has ndklab take each word as it is, runs labs as who may run them, and returns ndklab's exit code.
func TestRunScript(t *testing.T) {
	const run = "run\n--junit\nout put/junit.xml\n--html\nout put/report.html\n--artifacts\nout put/ndklab-artifacts\n"
	for _, c := range []struct {
		name  string
		env   []string
		code  int
		want  string // of the report
		owned bool   // the results are given to the user
	}{
		{name: "root", env: []string{"WHO=root", "MAY=root", "INPUT_FILES=."}, code: 1, want: "root\n5 ms\n" + run + "--\n.\n"},
		{name: "an ordinary user", env: []string{"WHO=user", "MAY=user", "SUDO=yes", "INPUT_FILES=."}, code: 1, want: "user\n5 ms\n" + run + "--\n.\n"},
		{name: "with sudo", env: []string{"WHO=user", "MAY=root", "SUDO=yes", "INPUT_FILES=."}, code: 1, want: "root\n5 ms\n" + run + "--\n.\n", owned: true},
		{name: "without sudo", env: []string{"WHO=user", "MAY=root"}, code: 3, want: "remedy: be root\n"},
		{name: "sudo does not help", env: []string{"WHO=user", "MAY=nobody", "SUDO=yes"}, code: 3, want: "remedy: be nobody\n"},
		{name: "root may not", env: []string{"WHO=root", "MAY=nobody", "SUDO=yes"}, code: 3, want: "remedy: be nobody\n"},
		{name: "simulated", env: []string{"WHO=user", "MAY=root", "INPUT_SIMULATE=true", "INPUT_FILES=a\nb"}, code: 1,
			want: "user\n5 ms\n" + run + "--simulate\n--\na\nb\n"},
		{name: "all inputs", env: []string{"WHO=root", "MAY=root", "INPUT_SIMULATE=false", "INPUT_JOBS=2", "INPUT_SHARD=1/2", "INPUT_BASELINE=base line.json",
			"INPUT_ARGUMENTS=--retries\n1\n\n--set=seed=7\n", "INPUT_FILES=a b\n-c\n"}, code: 1,
			want: "root\n5 ms\n" + run + "-j\n2\n--shard\n1/2\n--baseline\nbase line.json\n--retries\n1\n--set=seed=7\n--\na b\n-c\n"},
		{name: "no commands", env: []string{"WHO=root", "MAY=root", "INPUT_FILES=*\n$(touch pwned)\n; touch pwned\n`touch pwned`\n$HOME\n'\""}, code: 1,
			want: "root\n5 ms\n" + run + "--\n*\n$(touch pwned)\n; touch pwned\n`touch pwned`\n$HOME\n'\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, folder, fakes)
			script := exec.Command("sh", path(t, filepath.Join(filepath.Dir(templateFile), "run.sh")))
			script.Dir = folder
			script.Env = append(c.env, "PATH="+folder+"/path:"+folder+"/base:"+os.Getenv("PATH"), "INPUT_RESULTS=out put", "SUITE_VARIABLE=5 ms")
			out, err := script.CombinedOutput()
			if code := script.ProcessState.ExitCode(); code != c.code {
				t.Errorf("the exit code is %d, want %d: %v", code, c.code, err)
			}
			report, err := os.ReadFile(filepath.Join(folder, "out put", "report.txt"))
			if err != nil || string(report) != c.want || string(out) != c.want {
				t.Errorf("it says %q, and the report is %q, %v; want %q", out, report, err, c.want)
			}
			owner, err := os.ReadFile(filepath.Join(folder, "chown.txt"))
			if (err == nil) != c.owned || c.owned && string(owner) != "root -R 1000:1000 -- out put\n" {
				t.Errorf("the results are given to %q, %v", owner, err)
			}
			if _, err := os.Stat(filepath.Join(folder, "pwned")); err == nil {
				t.Error("a word of an input was run")
			}
		})
	}
}
