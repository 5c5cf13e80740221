package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// Where programs for RDMA are tested: glibc of Debian 11 and later.
const oldestGlibc = "2.31"

// programs judges whether unmodified programs for RDMA find a node's adapter.
func (f *Facts) programs() Finding {
	p := &f.Programs
	n := Finding{Name: "verbs", State: Missing, Consequence: "in nodes, programs that use libibverbs or librdmacm find no adapter; all else works"}
	switch {
	case p.Glibc == "" && p.Musl:
		// The initial-exec model: ELF Handling For Thread-Local Storage, 4.
		n.Found = "the C library is musl, which does not load a Go library into a running program:\nits thread-local storage would have to be there from the start"
		n.Remedy = "a system or container with glibc " + oldestGlibc + " or later, such as Debian 11"
	case p.Glibc == "":
		n.Found = "no glibc was found: " + orElse(p.Unfit.Message, "libc.so.6 is not in /etc/ld.so.cache")
		n.Remedy = "as root: ldconfig; or a system with glibc " + oldestGlibc + " or later"
	case !p.Libraries.ok():
		n.Found = "ndklab's libraries are missing: " + strings.ReplaceAll(p.Libraries.Message, "\n", "; ")
		n.Remedy = "make verbs (which takes a C compiler), or the folder verbs of a release, beside ndklab"
	case !p.Unfit.ok():
		n.State, n.Found = Limited, "a library of the system cannot be used: "+strings.ReplaceAll(p.Unfit.Message, "\n", "; ")
		n.Consequence = "in nodes, programs that use rdma_cm (librdmacm) find no adapter; others do"
		n.Remedy = "librdmacm.so.1 as rdma-core has it since version 33 (package librdmacm1, or librdmacm)"
	case older(p.Glibc, oldestGlibc):
		n.State, n.Found = Limited, "glibc "+p.Glibc
		n.Consequence = "programs for RDMA may run or not: this is tested with glibc " + oldestGlibc + " and later"
		n.Remedy = "a later system, or a container with one"
	default:
		n.State, n.Consequence = OK, ""
		n.Found = fmt.Sprintf("ndklab's libraries in %s, glibc %s, %s", p.Folder, p.Glibc, p.installed())
	}
	return n
}

// installed says which libraries the system has.
func (p *Programs) installed() string {
	ibverbs, rdmacm := strings.Join(p.Ibverbs, ", "), strings.Join(p.RDMACM, ", ")
	return orElse(ibverbs, "no libibverbs.so.1 of the system's (ndklab's is found)") + ", " +
		orElse(rdmacm, "no librdmacm.so.1 (package librdmacm1, for programs that use rdma_cm)")
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// older compares versions such as 2.31.
func older(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, err := strconv.Atoi(x[i])
		n, _ := strconv.Atoi(y[i]) // of the constant
		if err != nil || m != n {
			return err == nil && m < n
		}
	}
	return len(x) < len(y)
}
