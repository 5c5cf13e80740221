// Package naming is the words by which files and commands name nodes, endpoints and
// workloads, of which one word may stand for many names:
//
//	h1                 itself
//	h[1-64]            a range: h1, h2 ... h64
//	h[01-16]           h01 ... h16: a first number that begins with 0 says how many digits
//	h[1,3,5-7]         h1, h3, h5, h6, h7
//	rack[1-4]-h[1-8]   rack1-h1, rack1-h2 ... rack4-h8: the last range counts fastest
//	leaf*:*            a pattern, as shells have them: any text, also none
//	h?  h[a-c]  h[^a]  one character; of these; none of these
//
// Brackets around digits, commas and hyphens alone are a range, all others a class of
// characters. A range says which names there are: each has to exist where names are
// referred to. A pattern takes what there is, and a word with both takes what any of
// its patterns takes.
//
// The package is pure. Start reading at Parse.
package naming

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Most is for how many names a word stands at most.
const Most = 1 << 17

// Bounds on a word, so that finding each of its names takes little time.
const (
	mostBytes  = 4096
	mostRanges = 8
)

// A Word stands for names.
type Word struct {
	text    string
	parts   []part
	count   int
	pattern bool
}

// A part of a word is one of several texts: those of a range, or one that stands there.
type part struct {
	text   string
	ranges []span // nil: text
	count  int    // of the texts
}

// A span is numbers from first to last, with so many digits at least. As many numbers of
// the range come before it.
type span struct{ first, last, digits, before int }

// IsSeveral reports whether a text may stand for other names than itself.
func IsSeveral(text string) bool { return strings.ContainsAny(text, "*?[") }

// Parse reads a word. The error says what of it is wrong, and what is expected.
func Parse(text string) (Word, error) {
	w := Word{text: text, count: 1}
	if len(text) > mostBytes {
		return w, fmt.Errorf("%s has %d bytes, expected at most %d", quote(text), len(text), mostBytes)
	}
	ranges := 0
	for rest := text; rest != ""; {
		open := strings.IndexByte(rest, '[')
		if open < 0 {
			w.literal(rest)
			break
		}
		end := strings.IndexByte(rest[open:], ']')
		if end < 0 {
			return w, fmt.Errorf("%s has no ] behind its [, expected a range such as h[1-64]", quote(text))
		}
		end += open
		inside := rest[open+1 : end]
		if strings.Trim(inside, "0123456789-,") != "" { // a class of characters
			w.literal(rest[:end+1])
			rest = rest[end+1:]
			continue
		}
		w.literal(rest[:open])
		p, err := parseRange(inside)
		if err != nil {
			return w, fmt.Errorf("%s: %w", quote(text), err)
		}
		if w.parts, w.count = append(w.parts, p), w.count*p.count; w.count > Most {
			return w, fmt.Errorf("%s stands for more than %d names, expected fewer", quote(text), Most)
		}
		if ranges++; ranges > mostRanges {
			return w, fmt.Errorf("%s has more than %d ranges, expected fewer", quote(text), mostRanges)
		}
		rest = rest[end+1:]
	}
	if w.pattern {
		for name := range w.All() {
			if _, err := path.Match(name, ""); err != nil {
				return w, fmt.Errorf("%s is no pattern of names, expected one such as leaf-*", quote(text))
			}
			break // they differ in digits alone
		}
	}
	return w, nil
}

// literal adds text that stands in the word itself.
func (w *Word) literal(text string) {
	if text == "" {
		return
	}
	if last := len(w.parts) - 1; last >= 0 && w.parts[last].ranges == nil {
		w.parts[last].text += text
	} else {
		w.parts = append(w.parts, part{text: text, count: 1})
	}
	w.pattern = w.pattern || IsSeveral(text)
}

// parseRange reads what stands in the brackets of a range.
func parseRange(text string) (part, error) {
	p := part{}
	for item := range strings.SplitSeq(text, ",") {
		first, last, several := strings.Cut(item, "-")
		if !several {
			last = first
		}
		s := span{before: p.count}
		var err error
		if s.first, err = rangeNumber(first); err == nil {
			s.last, err = rangeNumber(last)
		}
		switch {
		case err != nil:
			return p, fmt.Errorf("the range [%s]: %w", text, err)
		case s.last < s.first:
			return p, fmt.Errorf("the range [%s] goes from %s down to %s, expected [%s-%s]", text, first, last, last, first)
		case len(first) > 1 && first[0] == '0':
			s.digits = len(first)
		}
		if len(first) != len(last) && (s.digits > 0 || last[0] == '0') {
			return p, fmt.Errorf("the range [%s] goes from %d to %d digits, expected as many, such as [01-16]", text, len(first), len(last))
		}
		p.ranges = append(p.ranges, s)
		if p.count += s.last - s.first + 1; p.count > Most {
			return p, fmt.Errorf("the range [%s] has more than %d numbers, expected fewer", text, Most)
		}
	}
	return p, nil
}

// rangeNumber reads a number of a range.
func rangeNumber(text string) (int, error) {
	if text == "" {
		return 0, errors.New("a number is missing, expected numbers such as [1-64] or [1,3,5-7]")
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || len(text) > 10 {
		return 0, fmt.Errorf("found %s, expected a number up to %d", quote(text), 1<<31-1)
	}
	return int(n), nil
}

// at is the text number i of a part.
func (p part) at(i int) string {
	if p.ranges == nil {
		return p.text
	}
	k, found := slices.BinarySearchFunc(p.ranges, i, func(s span, i int) int { return s.before - i })
	if !found {
		k--
	}
	s := p.ranges[k]
	return fmt.Sprintf("%0*d", s.digits, s.first+i-s.before)
}

// String is the word as it was written.
func (w Word) String() string { return w.text }

// Pattern reports whether the word takes what names there are, by patterns; else it says
// which there are.
func (w Word) Pattern() bool { return w.pattern }

// Plain reports whether the word stands for itself alone.
func (w Word) Plain() bool {
	return !w.pattern && !slices.ContainsFunc(w.parts, func(p part) bool { return p.ranges != nil })
}

// Count returns the number of names that All yields or, for a pattern, of patterns.
func (w Word) Count() int { return w.count }

// At returns name number i of All.
func (w Word) At(i int) string {
	texts := make([]string, len(w.parts))
	for k, p := range slices.Backward(w.parts) {
		texts[k] = p.at(i % p.count)
		i /= p.count
	}
	return strings.Join(texts, "")
}

// All yields the names that the word stands for or, if it is a pattern, the patterns.
func (w Word) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range w.count {
			if !yield(w.At(i)) {
				return
			}
		}
	}
}

// Has reports whether a name is one of those that the word stands for.
func (w Word) Has(name string) bool {
	if !w.pattern {
		return has(w.parts, name)
	}
	for pattern := range w.All() {
		if matches, _ := path.Match(pattern, name); matches {
			return true
		}
	}
	return false
}

// has reports whether a name is made of the parts.
func has(parts []part, name string) bool {
	switch {
	case len(parts) == 0:
		return name == ""
	case parts[0].ranges == nil:
		rest, ok := strings.CutPrefix(name, parts[0].text)
		return ok && has(parts[1:], rest)
	}
	for end := 1; end <= len(name) && name[end-1] >= '0' && name[end-1] <= '9'; end++ {
		if parts[0].has(name[:end]) && has(parts[1:], name[end:]) {
			return true
		}
	}
	return false
}

// has reports whether digits are a number of the range, as it is written there.
func (p part) has(digits string) bool {
	n, err := rangeNumber(digits)
	return err == nil && slices.ContainsFunc(p.ranges, func(s span) bool {
		return s.first <= n && n <= s.last && len(digits) == max(s.digits, len(strconv.Itoa(n)))
	})
}

// Among returns the names, out of all, that the word stands for: of a pattern in the order
// of all, of others in its own. missing names what is not there, a name or the whole
// pattern; "" if nothing is missing.
func (w Word) Among(all []string) (found []string, missing string) {
	if w.pattern {
		for _, name := range all {
			if w.Has(name) {
				found = append(found, name)
			}
		}
		if found == nil {
			missing = w.text
		}
		return found, missing
	}
	there := make(map[string]bool, len(all))
	for _, name := range all {
		there[name] = true
	}
	for name := range w.All() {
		if !there[name] {
			return nil, name
		}
		found = append(found, name)
	}
	return found, ""
}

// Split is the words of a list with commas, those in brackets apart.
func Split(list string) []string {
	var words []string
	depth, begin := 0, 0
	for i, c := range []byte(list) {
		switch {
		case c == '[':
			depth++
		case c == ']' && depth > 0:
			depth--
		case c == ',' && depth == 0:
			words = append(words, list[begin:i])
			begin = i + 1
		}
	}
	return append(words, list[begin:])
}

// quote is a word on one line of bearable length.
func quote(text string) string {
	const most = 60 // bytes
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strconv.Quote(text)
}
