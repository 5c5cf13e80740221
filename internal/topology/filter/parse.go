package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds how deep parentheses nest.
const maxDepth = 100

// A parser reads an expression from left to right. An operand is a test or a
// number; which one an opening parenthesis begins shows only later.
type parser struct {
	tokens []token
	next   int
	depth  int
	last   *qualifiers // of the primitive before, which a bare id takes over
}

// A value is an operand: exactly one of test and number is set. applies is set,
// with a number, if that is one only of some packets.
type value struct {
	test    test
	number  number
	applies test
}

func parse(text string) (test, error) {
	tokens, err := scan(text)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	p := &parser{tokens: tokens}
	if p.peek() == "" {
		return func(*packet) bool { return true }, nil
	}
	v, err := p.expression()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("found %q, expected and, or, or the end", p.peek())
	}
	if err == nil && v.test == nil {
		err = fmt.Errorf("found a number, expected a condition such as len > 100")
	}
	if err != nil {
		return nil, fmt.Errorf("filter %q, character %d: %w", text, p.tokens[min(p.next, len(p.tokens)-1)].at+1, err)
	}
	return v.test, nil
}

func (p *parser) peek() string { return p.tokens[p.next].text }

// take steps over the next token if it is one of these.
func (p *parser) take(any ...string) (string, bool) {
	t := p.peek()
	if t == "" || !slices.Contains(any, t) {
		return "", false
	}
	p.next++
	return t, true
}

func (p *parser) want(text string) error {
	if _, ok := p.take(text); !ok {
		return fmt.Errorf("found %s, expected %q", p.found(), text)
	}
	return nil
}

// found is the next token for messages.
func (p *parser) found() string {
	if p.peek() == "" {
		return "the end"
	}
	return strconv.Quote(p.peek())
}

// expression is conditions joined by and and or, which bind equally and to the
// left.
func (p *parser) expression() (value, error) {
	left, err := p.condition()
	for err == nil {
		word, ok := p.take("and", "&&", "or", "||")
		if !ok {
			return left, nil
		}
		var right value
		right, err = p.condition()
		switch {
		case err != nil:
		case left.test == nil || right.test == nil:
			err = fmt.Errorf("found a number beside %q, expected a condition such as len > 100", word)
		case word == "and" || word == "&&":
			left.test = both(left.test, right.test)
		default:
			left.test = either(left.test, right.test)
		}
	}
	return left, err
}

// condition is a relation, or the negation of one.
func (p *parser) condition() (value, error) {
	if p.depth++; p.depth > maxDepth {
		return value{}, fmt.Errorf("parentheses or negations nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	if _, ok := p.take("not", "!"); ok {
		v, err := p.condition()
		if err == nil && v.test == nil {
			err = fmt.Errorf("found a number after not, expected a condition")
		}
		if err != nil {
			return v, err
		}
		return value{test: not(v.test)}, nil
	}
	left, err := p.sum(0)
	if err != nil {
		return left, err
	}
	relation, ok := p.take("=", "==", "!=", "<", "<=", ">", ">=")
	if !ok {
		return left, nil
	}
	right, err := p.sum(0)
	if err == nil && (left.number == nil || right.number == nil) {
		err = fmt.Errorf("found a condition beside %q, expected a number", relation)
	}
	if err != nil {
		return left, err
	}
	return value{test: compare(left, right, relation)}, nil
}

func compare(left, right value, relation string) test {
	a, b := left.number, right.number
	holds := map[string]func(a, b uint32) bool{
		"=": func(a, b uint32) bool { return a == b }, "==": func(a, b uint32) bool { return a == b },
		"!=": func(a, b uint32) bool { return a != b },
		"<":  func(a, b uint32) bool { return a < b }, "<=": func(a, b uint32) bool { return a <= b },
		">": func(a, b uint32) bool { return a > b }, ">=": func(a, b uint32) bool { return a >= b },
	}[relation]
	t := func(p *packet) bool { return holds(a(p), b(p)) }
	for _, applies := range []test{left.applies, right.applies} {
		if applies != nil {
			t = both(applies, t)
		}
	}
	return t
}

// levels are the operators on numbers, from the weakest to the strongest.
var levels = [][]string{{"|", "^"}, {"&"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}}

// sum is an operand, or several with operators of a level or a stronger one.
func (p *parser) sum(level int) (value, error) {
	if level == len(levels) {
		return p.operand()
	}
	left, err := p.sum(level + 1)
	for err == nil {
		operator, ok := p.take(levels[level]...)
		if !ok {
			return left, nil
		}
		var right value
		right, err = p.sum(level + 1)
		if err == nil && (left.number == nil || right.number == nil) {
			err = fmt.Errorf("found a condition beside %q, expected a number", operator)
		}
		if err == nil {
			left = compute(left, right, operator)
		}
	}
	return left, err
}

func compute(left, right value, operator string) value {
	a, b := left.number, right.number
	v := value{applies: left.applies}
	if v.applies == nil {
		v.applies = right.applies
	} else if right.applies != nil {
		v.applies = both(left.applies, right.applies)
	}
	switch operator {
	case "|":
		v.number = func(p *packet) uint32 { return a(p) | b(p) }
	case "^":
		v.number = func(p *packet) uint32 { return a(p) ^ b(p) }
	case "&":
		v.number = func(p *packet) uint32 { return a(p) & b(p) }
	case "<<":
		v.number = func(p *packet) uint32 { return a(p) << b(p) }
	case ">>":
		v.number = func(p *packet) uint32 { return a(p) >> b(p) }
	case "+":
		v.number = func(p *packet) uint32 { return a(p) + b(p) }
	case "-":
		v.number = func(p *packet) uint32 { return a(p) - b(p) }
	case "*":
		v.number = func(p *packet) uint32 { return a(p) * b(p) }
	default: // division
		v.number = func(p *packet) uint32 {
			x, y := a(p), b(p)
			switch {
			case y == 0:
				p.beyond = true
				return 0
			case operator == "/":
				return x / y
			}
			return x % y
		}
	}
	return v
}

// named returns the number that has a name.
func named(name string) (n uint32, ok bool) {
	switch name {
	case "icmptype", "icmp6type":
		return 0, true
	case "icmpcode", "icmp6code", "tcp-fin":
		return 1, true
	case "tcp-syn":
		return 2, true
	case "tcp-rst":
		return 4, true
	case "tcp-push":
		return 8, true
	case "tcpflags":
		return 13, true
	case "tcp-ack":
		return 16, true
	case "tcp-urg":
		return 32, true
	case "tcp-ece":
		return 64, true
	case "tcp-cwr":
		return 128, true
	}
	return 0, false
}

// operand is the smallest part of an expression: one in parentheses, a number,
// or a primitive.
func (p *parser) operand() (value, error) {
	if _, ok := p.take("("); ok {
		v, err := p.expression()
		if err != nil {
			return v, err
		}
		return v, p.want(")")
	}
	if _, ok := p.take("len"); ok {
		return value{number: func(p *packet) uint32 { return uint32(len(p.bytes)) }}, nil
	}
	if _, ok := p.take("-"); ok {
		v, err := p.operand()
		if err == nil && v.number == nil {
			err = fmt.Errorf("found a condition after -, expected a number")
		}
		n := v.number
		return value{number: func(p *packet) uint32 { return -n(p) }, applies: v.applies}, err
	}
	if n, ok := p.constant(); ok {
		return value{number: func(*packet) uint32 { return n }}, nil
	}
	return p.primitive()
}

// constant takes a number, but not one that is the id of a primitive whose
// qualifiers stand before.
func (p *parser) constant() (uint32, bool) {
	t := p.peek()
	n, has := named(t)
	if !has {
		v, err := strconv.ParseUint(t, 0, 32)
		if err != nil {
			return 0, false
		}
		n = uint32(v)
	}
	if after := p.tokens[p.next+1].text; p.last != nil && !has && (after == "" || slices.Contains([]string{"and", "&&", "or", "||", ")"}, after)) {
		before := ""
		if p.next > 0 {
			before = p.tokens[p.next-1].text
		}
		if slices.Contains([]string{"and", "&&", "or", "||", "not", "!", "("}, before) {
			return 0, false
		}
	}
	p.next++
	return n, true
}

var (
	protocolWords = []string{"ether", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp"}
	kindWords     = []string{"host", "net", "port", "portrange", "proto"}
)

// primitive is qualifiers with an id, a protocol alone or a part of its header,
// or one of the few words that stand for themselves.
func (p *parser) primitive() (value, error) {
	if word, ok := p.take("less", "greater"); ok {
		n, ok := p.constant()
		if !ok {
			return value{}, fmt.Errorf("found %s, expected a length in bytes", p.found())
		}
		relation := map[string]string{"less": "<=", "greater": ">="}[word]
		length := value{number: func(p *packet) uint32 { return uint32(len(p.bytes)) }}
		return value{test: compare(length, value{number: func(*packet) uint32 { return n }}, relation)}, nil
	}
	var q qualifiers
	q.protocol, _ = p.take(protocolWords...)
	if word, ok := p.take("broadcast", "multicast"); ok {
		t, err := group(q.protocol, word)
		return value{test: t}, err
	}
	if _, ok := p.take("["); ok && q.protocol != "" {
		return p.part(q.protocol)
	}
	q.direction = p.direction()
	q.kind, _ = p.take(kindWords...)
	if q == (qualifiers{protocol: q.protocol}) && q.protocol != "" && !p.atID() {
		return value{test: kind(q.protocol)}, nil
	}
	inherited := q == (qualifiers{}) && p.last != nil
	if inherited {
		q = *p.last
	}
	start := p.next
	id, err := p.id(q, inherited)
	if err != nil {
		return value{}, err
	}
	t, err := q.primitive(id)
	if err != nil {
		p.next = start
		return value{}, err
	}
	p.last = &q
	return value{test: t}, nil
}

func (p *parser) direction() string {
	first, ok := p.take("src", "dst")
	if !ok {
		return ""
	}
	// src or dst host is one qualifier, src host a or dst host b is not.
	if p.next+1 < len(p.tokens) {
		word, second := p.tokens[p.next].text, p.tokens[p.next+1].text
		if (word == "or" || word == "and") && first != second && (second == "src" || second == "dst") {
			p.next += 2
			return "src " + word + " dst"
		}
	}
	return first
}

// atID reports whether an id comes next.
func (p *parser) atID() bool {
	t := p.peek()
	return t != "" && (strings.ContainsAny(t[:1], "0123456789:") || strings.Contains(t, ":"))
}

// id takes what a primitive is about, whose qualifiers may be those of the one before.
// Nets and ranges are put together from their parts.
func (p *parser) id(q qualifiers, inherited bool) (string, error) {
	id := p.peek()
	known := q.kind == "proto" && (protocolOf(id) != 0 || etherTypeOf(id) != 0)
	if !known && !p.atID() {
		if q == (qualifiers{}) {
			return "", fmt.Errorf("found %s, expected a condition such as udp port 4791, host 10.0.0.1 or arp", p.found())
		}
		words := strings.Join(strings.Fields(q.protocol+" "+q.direction+" "+q.kind), " ")
		if inherited {
			return "", fmt.Errorf("found %s, expected a condition such as udp port 4791, or what else %s may be", p.found(), words)
		}
		return "", fmt.Errorf("found %s, expected what %s is", p.found(), words)
	}
	p.next++
	joint := map[string]string{"net": "/", "portrange": "-"}[q.kind]
	if _, ok := p.take(joint); ok {
		id += joint + p.peek()
		if p.peek() == "" {
			return "", fmt.Errorf("found the end, expected what comes after %q", joint)
		}
		p.next++
	}
	return id, nil
}

// part is bytes of a header: offset, and size if not 1.
func (p *parser) part(protocol string) (value, error) {
	offset, err := p.sum(0)
	if err == nil && offset.number == nil {
		err = fmt.Errorf("found a condition, expected an offset in bytes")
	}
	if err != nil {
		return value{}, err
	}
	size := uint32(1)
	if _, ok := p.take(":"); ok {
		if size, ok = p.constant(); !ok || size != 1 && size != 2 && size != 4 {
			return value{}, fmt.Errorf("expected a size of 1, 2 or 4 bytes")
		}
	}
	if err := p.want("]"); err != nil {
		return value{}, err
	}
	begin := header(protocol)
	v := value{
		applies: func(p *packet) bool { _, ok := begin(p); return ok },
		number: func(p *packet) uint32 {
			at, ok := begin(p)
			if !ok {
				p.beyond = true
				return 0
			}
			return p.load(at+uint64(offset.number(p)), int(size))
		},
	}
	if offset.applies != nil {
		v.applies = both(v.applies, offset.applies)
	}
	return v, nil
}
