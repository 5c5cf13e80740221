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
