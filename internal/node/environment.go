package node

import "os"

// inheritable are the variables of whoever starts a lab that its nodes have: what programs
// need to find others, a folder to write to, and how to write. All others may be secret.
// Nodes do not have them, unless the topology or who runs a command gives them.
var inheritable = []string{"PATH", "HOME", "TERM", "LANG"}

// Environment is the calling process's environment without what is not a node's to know.
// The variables named in more stay, too.
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
