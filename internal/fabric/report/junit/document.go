package junit

import (
	"bufio"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// A document is XML that is being written; the first error sticks in the writer. It is not encoding/xml
// that writes it: its initialisation would delay every process of a lab, which are this binary.
type document struct{ *bufio.Writer }

func (d document) testsuites(s *testsuites) {
	d.printf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
	d.printf("<testsuites name=\"ndklab\" tests=\"%d\" failures=\"%d\" errors=\"%d\" time=\"%.3f\">\n", s.tests, s.failures, s.errors, s.seconds)
	for i := range s.suites {
		d.testsuite(&s.suites[i])
	}
	d.printf("</testsuites>\n")
}

func (d document) testsuite(s *testsuite) {
	d.printf("  <testsuite name=%s tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n",
		quoted(s.name), s.tests, s.failures, s.errors, s.skipped, s.seconds)
	d.printf("    <properties>\n")
	for _, p := range s.properties {
		d.printf("      <property name=%s value=%s/>\n", quoted(p.name), quoted(p.value))
	}
	d.printf("    </properties>\n")
	for i := range s.cases {
		d.testcase(&s.cases[i])
	}
	d.printf("  </testsuite>\n")
}

// testcase writes the parts of a testcase in the order that surefire's schema wants.
func (d document) testcase(c *testcase) {
	d.printf("    <testcase name=%s classname=%s time=\"%.3f\">\n", quoted(c.name), quoted(c.classname), c.seconds)
	d.outcome("failure", c.failure)
	if c.skipped != "" {
		d.printf("      <skipped message=%s/>\n", quoted(c.skipped))
	}
	d.outcome("error", c.err)
	if c.output != "" {
		d.printf("      <system-out>%s</system-out>\n", verbatim(c.output))
	}
	d.printf("    </testcase>\n")
}

func (d document) outcome(element string, o *outcome) {
	if o != nil {
		d.printf("      <%s message=%s type=%s>%s</%s>\n", element, quoted(o.message), quoted(o.kind), verbatim(o.text), element)
	}
}

func (d document) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d, format, args...) // the error stays in the writer
}

// quoted returns the value of an attribute. The five references that html writes are XML's, too.
func quoted(s string) string { return `"` + html.EscapeString(legible(s)) + `"` }

// verbatim returns text that people can read in the file, in CDATA sections, which cannot have their own
// end in them.
func verbatim(s string) string {
	return "<![CDATA[" + strings.ReplaceAll(legible(s), "]]>", "]]]]><![CDATA[>") + "]]>"
}

// most bounds how many bytes a text may have: CI systems cut, or refuse, what is larger.
const most = 64 << 10

// legible returns text as XML can have it: valid UTF-8 without control characters, and of what is too
// long the end, where errors are.
func legible(s string) string {
	if len(s) > most {
		s = "... " + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ' || r == utf8.RuneError || r == 0xFFFE || r == 0xFFFF || 0x7F <= r && r < 0xA0:
			return '?'
		}
		return r
	}, s)
}
