// Command purelint runs the pure rule (package lint/internal/pure) on the packages named.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/ndklab/ndklab/lint/internal/language"
	"github.com/ndklab/ndklab/lint/internal/pure"
)

func main() { multichecker.Main(pure.Analyzer, language.Analyzer) }
