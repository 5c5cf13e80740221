// Command purelint runs the pure rule (package lint/internal/pure) on the packages named.
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/ndklab/ndklab/lint/internal/pure"
)

func main() { singlechecker.Main(pure.Analyzer) }
