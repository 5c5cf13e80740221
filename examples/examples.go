// Package examples has the first topology file among the examples, which `ndklab demo` runs and `ndklab init` writes. The rest of
// the folder is for reading and running.
package examples

import _ "embed" // for Pair

// Pair is the text of pair.ndklab.yaml.
//
//go:embed pair.ndklab.yaml
var Pair string
