package filter

import (
	"bytes"
	"encoding/hex"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"pgregory.net/rapid"
)

// Packets of a capture: ARP, a RoCEv2 packet over IPv4 and over IPv6 with a BTH
// of opcode 0x11, TCP, ICMP, and a later fragment of UDP.
var packets = map[string]string{
	"arp":   "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002",
	"roce4": "020000000002 020000000001 0800 45000030 00004000 4011 0000 0a000001 0a000002 c000 12b7 001c 0000 11 40 ffff 00 000012 80 000034 00000056 aabbccdd",
	"roce6": "020000000002 020000000001 86dd 60000000 001c 11 40 fd000000000000000000000000000001 fd000000000000000000000000000002 c000 12b7 001c 0000 11 40 ffff 00 000012 80 000034 00000056 aabbccdd",
	"tcp":   "020000000001 020000000002 0800 4600002c 00004000 4006 0000 0a010002 0a000001 01010101 0050 c001 00000001 00000000 5012 ffff 0000 0000",
	"icmp":  "020000000001 020000000002 0800 4500001c 00004000 4001 0000 0a010002 0a000001 0800 0000 0001 0001",
	"later": "020000000002 020000000001 0800 45000030 00000010 4011 0000 0a000001 0a000002 c000 12b7 001c 0000 11 40 ffff",
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// expressions, each with the packets that match.
var expressions = map[string]string{
	"":                                       "arp icmp later roce4 roce6 tcp",
	"udp port 4791":                          "roce4 roce6",
	"udp":                                    "later roce4 roce6",
	"udp dst port 4791":                      "roce4 roce6",
	"udp src port 4791":                      "",
	"port 80 or 4791":                        "roce4 roce6 tcp",
	"tcp portrange 70-80":                    "tcp",
	"portrange 80-70":                        "tcp",
	"ip":                                     "icmp later roce4 tcp",
	"ip6":                                    "roce6",
	"arp or icmp":                            "arp icmp",
	"not arp and not tcp":                    "icmp later roce4 roce6",
	"! (arp or tcp)":                         "icmp later roce4 roce6",
	"host 10.0.0.1":                          "arp icmp later roce4 tcp",
	"host 10.0.0.2 or 10.1.0.2":              "arp icmp later roce4 tcp",
	"ip host 10.0.0.2":                       "later roce4",
	"src 10.1.0.2":                           "icmp tcp",
	"src host 10.1.0.2 and tcp":              "tcp",
	"dst 10.0.0.2":                           "arp later roce4",
	"src and dst net 10.0.0.0/16":            "arp later roce4",
	"src or dst net 10.1":                    "icmp tcp",
	"net 10.1.0.0/16":                        "icmp tcp",
	"host fd00::2":                           "roce6",
	"dst net fd00::/8":                       "roce6",
	"net fd00::2/127":                        "roce6",
	"ether host 02:00:00:00:00:02":           "icmp later roce4 roce6 tcp",
	"ether src 02:00:00:00:00:02":            "icmp tcp",
	"ether broadcast":                        "arp",
	"broadcast or ip6":                       "arp roce6",
	"multicast":                              "arp",
	"ether proto 0x86dd":                     "roce6",
	`ether proto \arp`:                       "arp",
	"ip proto 6":                             "tcp",
	`ip proto \udp`:                          "later roce4",
	`ip6 proto \udp`:                         "roce6",
	`proto \udp`:                             "later roce4 roce6",
	"len = 62":                               "roce4",
	"greater 62":                             "roce4 roce6",
	"less 42":                                "arp icmp",
	"ip[0] & 0xf > 5":                        "tcp",
	"udp[8] = 0x11":                          "roce4 roce6",
	"ip and udp[16:4] & 0xffffff = 0x34":     "roce4",
	"udp[8:1] & 0x1f == 17 and ip6":          "roce6",
	"tcp[tcpflags] & (tcp-syn|tcp-ack) != 0": "tcp",
	"tcp[tcpflags] & tcp-syn != 0 and not port 443":    "tcp",
	"(udp[10:2] + 1 = 0x10000 or icmp) and ip":         "icmp roce4",
	"icmp[icmptype] = 8":                               "icmp",
	"ip[2:2] - len = -14":                              "icmp roce4 tcp",
	"ip[6:2] & 0x1fff != 0":                            "later",
	"ip and not udp[2000] = 1":                         "icmp later tcp",
	"not udp[2000] = 1":                                "arp icmp later tcp",
	"ether[12:2] = 0x0806 or ether[6 * 2 : 2] >= 2048": "arp icmp later roce4 roce6 tcp",
	"ip and len / (ip[8] - 64) = 1":                    "",
}

func TestMatch(t *testing.T) {
	for text, want := range expressions {
		f, err := Parse(text)
		if err != nil {
			t.Error(err)
			continue
		}
		var got []string
		for _, name := range []string{"arp", "icmp", "later", "roce4", "roce6", "tcp"} {
			if f.Match(unhex(t, packets[name])) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q takes %q, want %q", text, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"udp prot 4791":           `character 5: found "prot", expected and, or, or the end`,
		"prot 4791":               `character 1: found "prot", expected a condition such as`,
		"udp port":                `character 9: found the end, expected what udp port is`,
		"udp port 1 or prot 2":    `character 15: found "prot", expected a condition such as udp port 4791, or what else udp port may be`,
		"port 70000":              `character 6: found "70000", expected a port number of 0 to 65535`,
		"port https":              `found "https", expected what port is`,
		"port 1-2":                `found a condition beside "-"`,
		"host example.com":        `found "example.com", expected what host is`,
		"host 10.0.0.300":         `character 6: found "10.0.0.300", expected an address: names are not looked up`,
		"10.0.0.1":                `found an address, expected host 10.0.0.1`,
		"net 10.0.0.1/8":          `net 10.0.0.1/8 has bits outside of its length, expected 10.0.0.0/8`,
		"net 10.0.0.0/33":         `expected a length of 0 to 32`,
		"tcp host 10.0.0.1":       `10.0.0.1 is of IPv4, expected no tcp before it`,
		"ip host ::1":             `::1 is of IPv6, expected no ip before it`,
		"ip port 80":              `ip has no ports`,
		"host 02:00:00:00:00:01":  `expected ether host 02:00:00:00:00:01`,
		"(udp":                    `character 5: found the end, expected ")"`,
		"udp)":                    `character 4: found ")", expected and, or, or the end`,
		"udp and":                 `character 8: found the end, expected a condition`,
		"len":                     `found a number, expected a condition such as len > 100`,
		"len and udp":             `found a number beside "and"`,
		"udp > 4":                 `found a condition beside ">"`,
		"udp[8:3] = 1":            `expected a size of 1, 2 or 4 bytes`,
		"udp[8 = 1":               `found "=", expected "]"`,
		"udp; rm":                 `character 4: found ";"`,
		"less than 4":             `found "than", expected a length in bytes`,
		"src proto 6":             `a protocol has no direction`,
		"tcp proto 6":             `found proto after tcp`,
		"tcp multicast":           `tcp has no multicast addresses`,
		"-udp = 4":                `found a condition after -`,
		"not 4":                   `found a number after not`,
		"proto udq":               `found "udq", expected what proto is`,
		"4 4":                     `character 3: found "4"`,
		strings.Repeat("(", 1000): `nested more than 100 deep`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", text, err, want)
		}
	}
}

// Names that are also keywords may have a backslash before them, as tcpdump wants.
func TestBackslash(t *testing.T) {
	for _, text := range []string{"proto udp", `proto \udp`} {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Match(unhex(t, packets["roce4"])) || f.Match(unhex(t, packets["tcp"])) {
			t.Errorf("%q does not take UDP alone", text)
		}
	}
}

// compiled is tcpdump's program for an expression.
func compiled(t testing.TB, text string) *bpf.VM {
	var stderr bytes.Buffer
	cmd := exec.Command("tcpdump", "-ddd", "-y", "EN10MB", text)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", text, err, stderr.Bytes())
	}
	var program []bpf.RawInstruction
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n")[1:] {
		var v [4]uint32
		for i, field := range strings.Fields(line) {
			n, err := strconv.ParseUint(field, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			v[i] = uint32(n)
		}
		program = append(program, bpf.RawInstruction{Op: uint16(v[0]), Jt: uint8(v[1]), Jf: uint8(v[2]), K: v[3]})
	}
	instructions, ok := bpf.Disassemble(program)
	if !ok {
		t.Fatalf("%q: a program that cannot be read", text)
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// TestAsTcpdump holds every expression against libpcap's compiler, with packets
// that differ from the above in some bytes, and in length; headers are whole,
// because which of them decides first is libpcap's optimizer's choice.
func TestAsTcpdump(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("needs tcpdump")
	}
	for text := range expressions {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "udp[") && !strings.Contains(text, "ip ") {
			continue // of IPv6, too, which is ours alone
		}
		vm := compiled(t, text)
		whole := map[string][]byte{}
		for name, s := range packets {
			whole[name] = unhex(t, s)
		}
		rapid.Check(t, func(t *rapid.T) {
			name := rapid.SampledFrom([]string{"arp", "icmp", "later", "roce4", "roce6", "tcp"}).Draw(t, "packet")
			packet := bytes.Clone(whole[name])
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				packet[rapid.IntRange(0, len(packet)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
			packet = append(packet, make([]byte, rapid.IntRange(0, 60).Draw(t, "padding"))...)
			taken, err := vm.Run(packet)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Match(packet); got != (taken > 0) {
				t.Fatalf("%q: %v, tcpdump says %v of %x", text, got, taken > 0, packet)
			}
		})
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	f, err := Parse("udp port 4791 and host 10.0.0.1 and udp[8] & 0x1f = 0x11")
	if err != nil {
		t.Fatal(err)
	}
	packet := unhex(t, packets["roce4"])
	if n := testing.AllocsPerRun(100, func() { f.Match(packet) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	for text := range expressions {
		f.Add(text, unhex(f, packets["roce4"]))
	}
	f.Fuzz(func(_ *testing.T, text string, packet []byte) {
		if filter, err := Parse(text); err == nil {
			filter.Match(packet)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	f, err := Parse("udp port 4791 and host 10.0.0.1")
	if err != nil {
		b.Fatal(err)
	}
	packet := unhex(b, packets["roce4"])
	for b.Loop() {
		f.Match(packet)
	}
}
