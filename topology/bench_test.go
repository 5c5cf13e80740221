package topology

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkParse is of a ring of 500 nodes, each with an adapter block of its
// own over those of its kind and of the defaults.
func BenchmarkParse(b *testing.B) {
	const nodes = 500
	var file strings.Builder
	file.WriteString(`topology:
  defaults: {adapter: {max_cq_depth: 65536, max_srq_depth: 1024}}
  kinds: {host: {adapter: {max_initiator_queue_depth: 4096, max_receive_queue_depth: 4096}}}
  nodes:
`)
	for i := range nodes {
		fmt.Fprintf(&file, "    n%d: {cpu: 1, adapter: {max_inline_data_size: 64B, max_inbound_read_limit: 8, max_outbound_read_limit: 8}}\n", i)
	}
	file.WriteString("  links:\n")
	for i := range nodes {
		fmt.Fprintf(&file, "    - {endpoints: [\"n%d:eth0\", \"n%d:eth1\"], delay: 1ms}\n", i, (i+1)%nodes)
	}
	data := []byte(file.String())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("ring.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParseLarge is of 100,000 nodes: switches with 99 hosts each, which are a ring.
func BenchmarkParseLarge(b *testing.B) {
	data := large(1000, 99)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("large.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}

// large returns the file of a ring of switches with as many hosts each.
func large(switches, hosts int) []byte {
	var file strings.Builder
	fmt.Fprintf(&file, "topology:\n  nodes:\n    s[1-%d]: {kind: switch, stp: true}\n", switches)
	for i := 1; i <= switches; i++ {
		fmt.Fprintf(&file, "    h%d-[1-%d]: {}\n", i, hosts)
	}
	file.WriteString("  links:\n")
	for i := 1; i <= switches; i++ {
		fmt.Fprintf(&file, "    - {endpoints: ['h%d-[1-%d]:eth0', 's%d:*'], delay: 10us}\n", i, hosts, i)
		fmt.Fprintf(&file, "    - {endpoints: ['s%d:r0', 's%d:r1'], delay: 1ms}\n", i, i%switches+1)
	}
	return []byte(file.String())
}
