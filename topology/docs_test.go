package topology

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docsFrame is a lab that the parts of one in the documents are put into, by the key
// that each begins with; %s is the part.
var docsFrame = map[string]string{
	"topology": "%s",
	"name":     "%s",
	"dilation": "%s",
	"hosts":    "%stopology: {nodes: {a: }}\n",
	"links": `topology:
  nodes: {a: {}, b: {}}
  %s`,
	"faults": `topology:
  nodes: {a: {}, b: {}}
  links:
    - endpoints: ["a:eth0", "b:eth0"]
      %s`,
	"workloads": docsLab + "%s",
	"timeline":  docsLab + docsWorkload + "%s",
	"chaos":     docsLab + "%s",
	"capture":   docsLab + "%s",
	"checks":    docsLab + docsWorkload + "timeline: [{at: 1s, snapshot: recovered}]\n%s",
	"baseline":  docsLab + docsWorkload + "%s",
}

const docsWorkload = `workloads:
  - {name: bulk, from: a, to: b, operation: write, size: 64KiB, count: 1, verify: true}
`

const docsLab = `topology:
  nodes: {a: {}, b: {}, c: {}}
  links:
    - endpoints: ["a:eth0", "b:eth0"]
    - endpoints: ["b:eth1", "c:eth0"]
    - endpoints: ["c:eth1", "a:eth1"]
`

// TestDocuments parses every block of YAML in the documents, which readers copy.
func TestDocuments(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	for file, least := range map[string]int{"../docs/getting-started.md": 1, "../docs/guide.md": 1, "../docs/topology.md": 7, "../docs/verbs.md": 1} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := blocks.FindAllSubmatchIndex(data, -1)
		if len(found) < least {
			t.Errorf("%s has %d blocks of YAML, want %d at least", file, len(found), least)
		}
		for _, at := range found {
			block := string(data[at[2]:at[3]])
			line := 1 + strings.Count(string(data[:at[2]]), "\n")
			key, _, _ := strings.Cut(block, ":")
			frame, ok := docsFrame[key]
			if !ok {
				t.Errorf("%s:%d: a block begins with %q, which docsFrame does not know", file, line, key)
				continue
			}
			before, _, _ := strings.Cut(frame, "%s")
			indent := before[strings.LastIndex(before, "\n")+1:]
			text := strings.Replace(frame, "%s", strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n"+indent)+"\n", 1)
			if _, err := ParseWith(Options{Read: readSamples}, "docs.yaml", []byte(text)); err != nil {
				t.Errorf("%s:%d: %v\n%s", file, line, err, text)
			}
		}
	}
}
