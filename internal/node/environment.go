package node

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// inheritable are the variables that nodes have from whoever starts their lab: what programs
// need to find others, a folder to write to, and how to write. All others may be secret.
// Nodes have them only if the topology or a command gives them.
var inheritable = []string{"PATH", "HOME", "TERM", "LANG"}

// Environment returns the variables of the calling process that a node may know, and those
// named in more.
func Environment(more ...string) []string {
	env := []string{}
	for _, names := range [][]string{inheritable, more} {
		for _, name := range names {
			if value, set := os.LookupEnv(name); set {
				env = append(env, name+"="+value)
			}
		}
	}
	return env
}

// withVariables returns an environment in which variables have these values.
func withVariables(env []string, variables map[string]string) []string {
	changed := make([]string, 0, len(env)+len(variables))
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := variables[name]; !ok {
			changed = append(changed, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		changed = append(changed, name+"="+variables[name])
	}
	return changed
}
