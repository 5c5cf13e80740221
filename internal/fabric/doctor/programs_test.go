package doctor

import (
	"errors"
	"strings"
	"testing"
)

func TestJudgePrograms(t *testing.T) {
	good := Programs{Folder: "/opt/verbs", Glibc: "2.36", Ibverbs: []string{"/lib/libibverbs.so.1"}, RDMACM: []string{"/lib/librdmacm.so.1"}}
	lacks := attempt(errors.New("stat /opt/verbs/libibverbs.so.1: no such file"))
	unfit := attempt(errors.New("/lib/librdmacm.so.1: it does not import write"))
	for name, c := range map[string]struct {
		programs Programs
		state    State
		found    string
		remedy   string
	}{
		"all":                 {good, OK, "ndklab's libraries in /opt/verbs, glibc 2.36, /lib/libibverbs.so.1, /lib/librdmacm.so.1", ""},
		"nothing installed":   {Programs{Folder: "/opt/verbs", Glibc: "2.31"}, OK, "no libibverbs.so.1 of the system's (ndklab's is found), no librdmacm.so.1 (package librdmacm1", ""},
		"not built":           {Programs{Libraries: lacks, Glibc: "2.36"}, Missing, "/opt/verbs/libibverbs.so.1", "make verbs"},
		"musl":                {Programs{Libraries: lacks, Musl: true, Unfit: unfit}, Missing, "the C library is musl, which", "glibc 2.31"},
		"glibc and musl":      {Programs{Folder: "/opt/verbs", Glibc: "2.39", Musl: true}, OK, "glibc 2.39", ""},
		"no cache":            {Programs{Unfit: attempt(errors.New("/etc/ld.so.cache is not there"))}, Missing, "no glibc was found: /etc/ld.so.cache is not there", "ldconfig"},
		"no libc in it":       {Programs{}, Missing, "libc.so.6 is not in /etc/ld.so.cache", "ldconfig"},
		"another librdmacm":   {Programs{Folder: "/opt/verbs", Glibc: "2.36", Unfit: unfit}, Limited, "it does not import write", "rdma-core"},
		"Debian 10":           {Programs{Folder: "/opt/verbs", Glibc: "2.28"}, Limited, "glibc 2.28", "a later system"},
		"an odd glibc, as is": {Programs{Folder: "/opt/verbs", Glibc: "2.40.9000"}, OK, "2.40.9000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := able()
			f.Programs = c.programs
			n := f.programs()
			if n.State != c.state || !strings.Contains(n.Found, c.found) || !strings.Contains(n.Remedy, c.remedy) || (n.Remedy == "") != (c.remedy == "") {
				t.Errorf("got %+v", n)
			}
			if n.Required || (n.State == OK) != (n.Consequence == "") {
				t.Errorf("got %+v", n)
			}
		})
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"2.30", "2.31", true}, {"2.31", "2.31", false}, {"2.4", "2.31", true}, {"3.0", "2.31", false}, {"2", "2.31", true}, {"2.31.1", "2.31", false}, {"x", "2.31", false}} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %v", c.a, c.b, got)
		}
	}
}
