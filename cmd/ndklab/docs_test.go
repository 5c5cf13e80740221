package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// repository is the folder with the documents, from that of this package.
const repository = "../.."

// documents returns the text of every document of the repository, by its path.
func documents(t *testing.T) map[string]string {
	if _, err := os.Stat(filepath.Join(repository, "README.md")); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tests run without the repository") // as the ordinary user's do
	}
	texts := make(map[string]string)
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			texts[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 10 {
		t.Fatalf("%d documents were found", len(texts))
	}
	return texts
}

// prose returns a document without its fenced blocks.
func prose(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// anchors returns the names by which links point at the headings of a document. They are
// those that GitHub makes: lower case, spaces as dashes, and no other punctuation.
func anchors(text string) []string {
	var names []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Links from document to document, and to files, lead to what is there.
func TestLinksInDocuments(t *testing.T) {
	texts, found := documents(t), 0
	for path, text := range texts {
		for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(text), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, ":") { // of the web
				continue
			}
			found++
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s: %v", path, match[1], err)
			} else if anchor != "" && !slices.Contains(anchors(texts[to]), anchor) {
				t.Errorf("%s: the link %s: %s has no such heading", path, match[1], to)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d links were found", found)
	}
}

// shown returns the command lines of ndklab that a document shows, each without what
// precedes its first argument: those in blocks of code, and those between backticks.
func shown(text string) []string {
	var lines []string
	command := regexp.MustCompile(`(?:^|[ (])(?:bin/)?ndklab( [^|&;>)]*)`)
	for line := range strings.Lines(text) {
		if code, isBlock := strings.CutPrefix(line, "    "); isBlock {
			code, _, _ = strings.Cut(code, " #")
			for _, match := range command.FindAllStringSubmatch(code, -1) {
				lines = append(lines, match[1])
			}
		}
		for _, code := range regexp.MustCompile("`(?:bin/)?ndklab( [^`]*)`").FindAllStringSubmatch(line, -1) {
			lines = append(lines, code[1])
		}
	}
	return lines
}

// Documents show commands and flags that there are.
func TestCommandsInDocuments(t *testing.T) {
	root, found := rootCommand(io.Discard, io.Discard), 0
	for path, text := range documents(t) {
		for _, line := range shown(text) {
			arguments, _, _ := strings.Cut(line+" ", " -- ") // what follows is another program's
			words := strings.Fields(arguments)
			if len(words) == 0 || words[0] == "COMMAND" {
				continue
			}
			found++
			cmd, rest, err := root.Find(words)
			if err != nil || cmd == root {
				t.Errorf("%s: `ndklab%s`: no such command", path, line)
				continue
			}
			cmd.InitDefaultHelpFlag()
			for _, word := range rest {
				if !hasFlag(cmd, strings.Trim(word, "[]'\"")) {
					t.Errorf("%s: `ndklab%s`: %s has no flag %s", path, line, cmd.CommandPath(), word)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d commands were found", found)
	}
}

// hasFlag reports whether a word of a command line is a flag of the command, or none.
func hasFlag(cmd *cobra.Command, word string) bool {
	if name, isLong := strings.CutPrefix(word, "--"); isLong {
		name, _, _ = strings.Cut(name, "=")
		return cmd.Flags().Lookup(name) != nil
	}
	if name, isShort := strings.CutPrefix(word, "-"); isShort && name != "" {
		return cmd.Flags().ShorthandLookup(name[:1]) != nil
	}
	return true
}

// Flags that the manual names between backticks are some command's.
func TestFlagsInManual(t *testing.T) {
	all, texts, found := commands(rootCommand(io.Discard, io.Discard)), documents(t), 0
	for _, cmd := range all {
		cmd.InitDefaultHelpFlag()
	}
	for _, name := range []string{"README.md", "docs/getting-started.md", "docs/guide.md", "docs/reference.md", "docs/reports.md", "docs/suites.md"} {
		for _, match := range regexp.MustCompile("`(?:[a-z]+ )?(--[a-z-]+)[^`]*`").FindAllStringSubmatch(texts[filepath.Join(repository, name)], -1) {
			found++
			if !slices.ContainsFunc(all, func(cmd *cobra.Command) bool { return hasFlag(cmd, match[1]) }) {
				t.Errorf("%s: no command has the flag %s", name, match[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d flags were found", found)
	}
}

// The reference's table of commands has every command, and no other.
func TestCommandsInReference(t *testing.T) {
	_, table, _ := strings.Cut(documents(t)[filepath.Join(repository, "docs/reference.md")], "\n## Commands\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var shown, have []string
	for line := range strings.Lines(table) {
		if cell, isRow := strings.CutPrefix(line, "| `ndklab "); isRow {
			cell, _, _ = strings.Cut(cell, " | ")
			for _, words := range regexp.MustCompile("(?:^|, `)([a-z-]+)").FindAllStringSubmatch(cell, -1) {
				shown = append(shown, words[1])
			}
		}
	}
	for _, c := range rootCommand(io.Discard, io.Discard).Commands() {
		have = append(have, c.Name())
	}
	for _, names := range []*[]string{&shown, &have} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	if !slices.Equal(shown, have) {
		t.Errorf("the reference has the commands %v, ndklab has %v", shown, have)
	}
}

// The reference's exit codes are those of this package.
func TestExitCodesInReference(t *testing.T) {
	_, table, _ := strings.Cut(documents(t)[filepath.Join(repository, "docs/reference.md")], "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var shown []string
	for _, match := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		shown = append(shown, match[1])
	}
	var have []string
	for _, code := range []int{exitOK, exitFailed, exitUsage, exitUnable, exitFault, exitInterrupted} {
		have = append(have, strconv.Itoa(code))
	}
	if !slices.Equal(shown, have) {
		t.Errorf("the reference has the exit codes %v, ndklab has %v", shown, have)
	}
}

// The front page is read to its end.
func TestFrontPage(t *testing.T) {
	const most = 120
	if lines := strings.Count(documents(t)[filepath.Join(repository, "README.md")], "\n"); lines > most {
		t.Errorf("README.md has %d lines, %d at most: the manual is in docs", lines, most)
	}
}
