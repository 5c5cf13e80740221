package filter

import (
	"fmt"
	"strings"
)

// A token is a word, a number, an address or an operator; the last has no text.
type token struct {
	text string
	at   int // offset in bytes
}

// operators, the longer ones first.
var operators = []string{"&&", "||", "==", "!=", "<=", ">=", "<<", ">>",
	"(", ")", "[", "]", "!", "=", "<", ">", "|", "^", "&", "+", "-", "*", "/", "%"}

// scan takes an expression apart. A colon belongs to an address, but in brackets
// it stands before a size.
func scan(text string) ([]token, error) {
	var tokens []token
	brackets := 0
next:
	for at := 0; at < len(text); {
		if strings.ContainsRune(" \t\r\n", rune(text[at])) {
			at++
			continue
		}
		if text[at] == '\\' && at+1 < len(text) && inWord(text[at+1:], 0, true) {
			at++ // tcpdump wants it before names that are also keywords
		}
		size := 0
		for size < len(text)-at && inWord(text[at:], size, brackets > 0) {
			size++
		}
		if size > 0 {
			tokens = append(tokens, token{text[at : at+size], at})
			at += size
			continue
		}
		if brackets > 0 && text[at] == ':' {
			tokens = append(tokens, token{":", at})
			at++
			continue
		}
		for _, o := range operators {
			if !strings.HasPrefix(text[at:], o) {
				continue
			}
			switch o {
			case "[":
				brackets++
			case "]":
				brackets--
			}
			tokens = append(tokens, token{o, at})
			at += len(o)
			continue next
		}
		return nil, fmt.Errorf("character %d: found %q, expected a word, a number, an address or an operator", at+1, firstRune(text[at:]))
	}
	return append(tokens, token{"", len(text)}), nil
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// inWord reports whether byte i of s belongs to the word that s begins with.
func inWord(s string, i int, inBrackets bool) bool {
	c := s[i]
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '.':
		return true
	case c == ':':
		return !inBrackets
	case c == '-': // of names such as tcp-syn
		if i <= 0 {
			return false
		}
		_, has := named(s[:i] + "-" + letters(s[i+1:]))
		return has
	}
	return false
}

// letters is the lower-case letters that s begins with.
func letters(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz"))]
}
