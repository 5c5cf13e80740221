// Command purelint runs the pure rule (package lint/pure) on the packages named.
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/ndklab/ndklab/lint/pure"
)

func main() { singlechecker.Main(pure.Analyzer) }
