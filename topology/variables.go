package topology

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// This file is variables of the environment in the values of a file:
//
//	${NAME}            its value; it has to be set
//	${NAME:-default}   likewise, or the default if it is not set or empty
//	${NAME:=default}   the same
//	${NAME:?message}   likewise; if it is not set or empty, the message is an error
//	$$                 a dollar
//
// A dollar before anything else is itself, so that commands of a shell can be
// written as they are but for $$. Variables are put into single values, after YAML
// has been read: what is in them is never taken for keys, lists or comments, and
// nothing in them is a variable again.

// maxNesting bounds defaults inside of defaults.
const maxNesting = 8

// A Variables looks up a variable of the environment, as os.LookupEnv does.
type Variables func(name string) (value string, set bool)

// substitute puts variables into all values below n, keys excepted. It does not
// follow an alias, whose value is where its anchor is. Size is the number of bytes
// that all of them may become.
func substitute(r *reader, n *yaml.Node, size *int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			substitute(r, n.Content[i], size)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			substitute(r, item, size)
		}
	case yaml.ScalarNode:
		if !strings.Contains(n.Value, "$") {
			return
		}
		e := expansion{look: r.Variable, rest: n.Value, left: *size}
		text, err := e.text(0, true)
		if err != nil {
			r.errorf(n, "%v", err)
			return
		}
		n.Value, *size = text, e.left
	}
}

// An expansion puts variables into one value.
type expansion struct {
	look Variables // nil: none is set
	rest string    // of the value, that is still to be read
	left int       // bytes that may still be written
}

var errTooLarge = fmt.Errorf("the values of variables make the file larger than %d bytes (%d MiB), expected no more", MaxSize, MaxSize>>20)

// text reads up to the end or, if it is inside of that many defaults, up to the
// brace that closes the innermost. A default that is not used is read, but no
// variable in it is looked up.
func (e *expansion) text(depth int, used bool) (string, error) {
	var b strings.Builder
	write := func(s string) error {
		if !used {
			return nil
		}
		if e.left -= len(s); e.left < 0 {
			return errTooLarge
		}
		b.WriteString(s)
		return nil
	}
	for {
		stop := "$"
		if depth > 0 {
			stop = "$}"
		}
		i := strings.IndexAny(e.rest, stop)
		if i < 0 {
			i = len(e.rest)
		}
		if err := write(e.rest[:i]); err != nil {
			return "", err
		}
		e.rest = e.rest[i:]
		var piece string
		switch {
		case e.rest == "" || e.rest[0] == '}':
			return b.String(), nil
		case strings.HasPrefix(e.rest, "$$"):
			piece, e.rest = "$", e.rest[2:]
		case !strings.HasPrefix(e.rest, "${"):
			piece, e.rest = "$", e.rest[1:]
		default:
			e.rest = e.rest[2:]
			value, err := e.variable(depth, used)
			if err != nil {
				return "", err
			}
			piece = value
		}
		if err := write(piece); err != nil {
			return "", err
		}
	}
}

// variable reads what stands behind ${, with the closing brace, and is its value.
func (e *expansion) variable(depth int, used bool) (string, error) {
	name := e.rest[:len(e.rest)-len(strings.TrimLeft(e.rest, variableLetters))]
	e.rest = e.rest[len(name):]
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "", fmt.Errorf("found %s, expected the name of a variable as in ${NAME}, or $$ for a dollar", quote("${"+name+e.rest))
	}
	if depth == maxNesting {
		return "", fmt.Errorf("variable %s: defaults nested more than %d deep, expected fewer", name, maxNesting)
	}
	value, set := "", false
	if used && e.look != nil {
		value, set = e.look(name)
	}
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("the variable %s is not UTF-8, expected UTF-8 text", name)
	}
	operator := ""
	for _, o := range []string{":-", ":=", ":?"} {
		if strings.HasPrefix(e.rest, o) {
			operator, e.rest = o, e.rest[len(o):]
		}
	}
	other := ""
	if operator != "" {
		var err error
		if other, err = e.text(depth+1, used && value == ""); err != nil {
			return "", err
		}
	}
	if !strings.HasPrefix(e.rest, "}") {
		if e.rest == "" {
			return "", fmt.Errorf("${%s has no end, expected }", name)
		}
		return "", fmt.Errorf("found %s behind ${%s, expected }, :-DEFAULT}, :=DEFAULT} or :?MESSAGE}", quote(e.rest), name)
	}
	e.rest = e.rest[1:]
	switch {
	case !used || value != "" || operator == "" && set:
		return value, nil
	case operator == "":
		return "", fmt.Errorf("the variable %s is not set, expected it in the environment, or a default: ${%s:=DEFAULT}", name, name)
	case operator == ":?" && other == "":
		return "", fmt.Errorf("the variable %s is not set or empty, expected it in the environment", name)
	case operator == ":?":
		return "", errors.New(name + ": " + plainLine(other))
	}
	e.left += len(other) // which the caller counts again
	return other, nil
}

// plainLine is text on one line of bearable length, without quotes unless it needs
// them.
func plainLine(text string) string {
	if quoted := quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

const variableLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
