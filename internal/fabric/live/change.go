package live

import "strings"

// Command returns the command that does a change of a lab.
func (c *Change) Command(lab string) string {
	words := []string{"ndklab"}
	add := func(more ...string) { words = append(words, more...) }
	link := func(command string) {
		add("link", command, lab+"/"+c.Endpoint)
		add(c.Settings...)
		if c.From != "" {
			add("--from", c.From)
		}
	}
	switch c.Act {
	case "set", "reset":
		link(c.Act)
	case "cut":
		link("down")
	case "heal":
		link("up")
	case "partition":
		add("link", "partition", lab)
		for _, set := range c.Sets {
			add(strings.Join(set, ","))
		}
	case "unpartition":
		add("link", "heal", lab)
	case "perf":
		add("perf", lab, "write-bw", "--from", c.Node, "--to", c.To)
	default:
		add(c.Act, lab+"/"+c.Node)
	}
	for i, word := range words {
		words[i] = quoted(word)
	}
	return strings.Join(words, " ")
}

// quoted returns a word as a shell takes it.
func quoted(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:,=%+@", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
