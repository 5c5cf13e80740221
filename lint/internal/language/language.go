// Package language is the lint rule for the sentences of comments: the main clause
// comes first, and a definition says what a thing does or returns.
//
// It finds two forms that read backwards. "limit is how long a caller waits" defines
// by a relative clause, where "limit bounds the time that a caller waits" says it.
// "What is lost is sent again" begins with one, where "The sender repeats lost
// packets" has a subject. The rule knows no grammar: it looks at the words that a
// sentence begins with, so questions and quotations pass, and so does much else.
//
// Start reading at Analyzer; cmd lint/purelint runs it.
package language

import (
	"go/ast"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports comments that break the rule.
var Analyzer = &analysis.Analyzer{
	Name: "language",
	Doc:  "sentences of comments begin with their main clause, and define by what a thing does",
	Run:  run,
}

var (
	// defines matches a sentence that defines its subject by a relative clause.
	defines = regexp.MustCompile(`^(?:(?:A|An|The|This|These|Both) )?[\w./*-]+(?: (?:and|or)(?: an?| the)? [\w./*-]+)? (?:is|are|was|were) (?:what|how|who|why|when|where|whose|whoever|whatever|whether)\b`)
	// opens matches a sentence that begins with a relative clause.
	opens = regexp.MustCompile(`^(?:What|Whatever|Who|Whoever|Whose|How|Why|Whether|Which|That (?:a|an|the|it|they|there|this|no|some|one|all|nothing)) `)
	// sentence ends a sentence: a full stop before white space and a capital.
	sentence = regexp.MustCompile(`[.?!]["')]*\s+(?:[A-Z"])`)
)

func run(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			check(pass, group)
		}
	}
	return nil, nil
}

// check reports the sentences of a comment that break the rule, at the comment's beginning.
func check(pass *analysis.Pass, group *ast.CommentGroup) {
	for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
		for _, s := range sentences(strings.Join(strings.Fields(paragraph), " ")) {
			switch {
			case strings.HasSuffix(s, "?"):
			case opens.MatchString(s):
				pass.Reportf(group.Pos(), "the sentence begins with a relative clause: %s", shorten(s))
			case defines.MatchString(s):
				pass.Reportf(group.Pos(), "the sentence defines by a relative clause: %s", shorten(s))
			}
		}
	}
}

// sentences splits a paragraph.
func sentences(paragraph string) (found []string) {
	for {
		end := sentence.FindStringIndex(paragraph)
		if end == nil {
			return append(found, paragraph)
		}
		found = append(found, strings.TrimSpace(paragraph[:end[1]-1]))
		paragraph = paragraph[end[1]-1:]
	}
}

// shorten returns the beginning of a sentence, at most 60 bytes of it.
func shorten(s string) string {
	if len(s) <= 60 {
		return s
	}
	return s[:strings.LastIndexByte(s[:60], ' ')] + " ..."
}
