// Package shell says what a command that somebody runs in a node is started with, beside what it is given: `ndklab exec`,
// `ndklab shell` and the page's terminals start shells alike. It starts nothing.
package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Path returns the shell that the variable SHELL names, or sh.
func Path() string {
	if path := os.Getenv("SHELL"); path != "" {
		return path
	}
	return "sh"
}

// WithPrompt has shells say where they are, LAB/NODE. Shells take PS1 as it is, but for what
// their files say. Of bash these almost always set it, and so PROMPT_COMMAND, which
// bash runs before it prompts, puts the node in front, and itself away.
func WithPrompt(env []string, target string) []string {
	return append(env,
		"PS1=["+target+"] # ",
		fmt.Sprintf(`PROMPT_COMMAND=unset PROMPT_COMMAND; case $PS1 in *"[%[1]s]"*) ;; *) PS1="[%[1]s] $PS1" ;; esac`, target))
}

// WithSelf adds the folder of this program to the end of PATH, so that a node finds
// "ndklab" also where it was started by a path, as bin/ndklab is.
func WithSelf(env []string) []string {
	self, err := os.Executable()
	if err != nil {
		return env // the command may do without
	}
	dir := filepath.Dir(self)
	for i, v := range env {
		switch {
		case v == "PATH=":
			env[i] = v + dir
			return env
		case strings.HasPrefix(v, "PATH="):
			env[i] = v + string(filepath.ListSeparator) + dir
			return env
		}
	}
	return append(env, "PATH="+dir)
}
