package live

import "testing"

func TestCommand(t *testing.T) {
	for want, c := range map[string]Change{
		"ndklab link set pair/a:eth0 delay=1ms loss=1%":             {Act: "set", Endpoint: "a:eth0", Settings: []string{"delay=1ms", "loss=1%"}},
		"ndklab link set pair/a:eth0 'loss={rate: 1%}' --from a":    {Act: "set", Endpoint: "a:eth0", From: "a", Settings: []string{"loss={rate: 1%}"}},
		"ndklab link reset pair/a:eth0 --from b":                    {Act: "reset", Endpoint: "a:eth0", From: "b"},
		"ndklab link down pair/a:eth0":                              {Act: "cut", Endpoint: "a:eth0"},
		"ndklab link up pair/a:eth0":                                {Act: "heal", Endpoint: "a:eth0"},
		"ndklab link partition pair a,b c":                          {Act: "partition", Sets: [][]string{{"a", "b"}, {"c"}}},
		"ndklab link heal pair":                                     {Act: "unpartition"},
		"ndklab pause pair/a":                                       {Act: "pause", Node: "a"},
		"ndklab perf pair write-bw --from a --to b":                 {Act: "perf", Node: "a", To: "b"},
		`ndklab kill 'pair/it'\''s'`:                                {Act: "kill", Node: "it's"},
		"ndklab link set pair/a:eth0 'faults=[$(x)]' 'loss=`y`' ''": {Act: "set", Endpoint: "a:eth0", Settings: []string{"faults=[$(x)]", "loss=`y`", ""}},
	} {
		if got := c.Command("pair"); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}
