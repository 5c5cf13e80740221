package rtnl

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// inNamespace runs f in a network namespace of its own.
func inNamespace(t *testing.T, f func(*Socket)) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		defer func() { done <- err }() // also when f has failed the test
		var s *Socket
		if err == nil {
			s, err = Open()
		}
		if err == nil {
			defer s.Close()
			f(s)
		}
	}()
	err := <-done
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		t.Skip("needs a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// link is about lo, or about an interface that there is not.
func link(name string) []nl.NetlinkRequestData {
	return []nl.NetlinkRequestData{nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name))}
}

// Requests take one system call to send for every atOnce of them, whether they ask or have something
// done.
func TestManyAtOnce(t *testing.T) {
	inNamespace(t, func(s *Socket) {
		var b Batch
		for i := range 200 {
			m := nl.NewIfAddrmsg(unix.AF_INET)
			m.Index, m.Prefixlen = 1, 32
			b.Add("address", unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m, nl.NewRtAttr(unix.IFA_LOCAL, []byte{127, 0, 1, byte(i)}))
		}
		b.Add("lo", unix.RTM_GETLINK, 0, link("lo")...)
		answers, err := s.Do(&b)
		if err != nil {
			t.Fatal(err)
		}
		if s.sends != 6 { // 201 requests
			t.Errorf("%d system calls to send", s.sends)
		}
		for i, a := range answers {
			if (a != nil) != (i == 200) {
				t.Errorf("answer %d has %d bytes", i, len(a))
			}
		}
		if got := nl.DeserializeIfInfomsg(answers[200]).Index; got != 1 {
			t.Errorf("lo has the index %d", got)
		}
	})
}

// The answers to many questions fit: the kernel drops what does not.
func TestLongBatch(t *testing.T) {
	inNamespace(t, func(s *Socket) {
		var b Batch
		const requests = 300
		for range requests {
			b.Add("lo", unix.RTM_GETLINK, 0, link("lo")...)
		}
		answers, err := s.Do(&b)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if a == nil {
				t.Fatalf("no answer to request %d", i)
			}
		}
	})
}

// The first failure is told, with what it was for; what is behind it is done.
func TestFailures(t *testing.T) {
	inNamespace(t, func(s *Socket) {
		for _, last := range []string{"lo", "none"} {
			var b Batch
			b.Add("good", unix.RTM_GETLINK, 0, link("lo")...)
			b.Add("first bad", unix.RTM_GETLINK, 0, link("nothing")...)
			b.Add("second bad", unix.RTM_GETLINK, 0, link("nothing either")...)
			b.Add("last", unix.RTM_GETLINK, 0, link(last)...)
			answers, err := s.Do(&b)
			if !errors.Is(err, unix.ENODEV) || !strings.HasPrefix(fmt.Sprint(err), "first bad: ") {
				t.Errorf("got %v", err)
			}
			if answers[0] == nil || answers[1] != nil || (answers[3] != nil) != (last == "lo") {
				t.Errorf("answers: %d, %d, %d bytes", len(answers[0]), len(answers[1]), len(answers[3]))
			}
		}
		// The next batch is not taken in by answers to this one.
		var b Batch
		b.Add("again", unix.RTM_GETLINK, 0, link("lo")...)
		if answers, err := s.Do(&b); err != nil || answers[0] == nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestEmptyBatch(t *testing.T) {
	inNamespace(t, func(s *Socket) {
		if answers, err := s.Do(&Batch{}); err != nil || len(answers) != 0 || s.sends != 0 {
			t.Errorf("%v, %v, %d system calls", answers, err, s.sends)
		}
	})
}
