package pure

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestAnalyzer(t *testing.T) {
	const module = "github.com/ndklab/ndklab/"
	analysistest.Run(t, analysistest.TestData(), Analyzer,
		module+"internal/provider/rc", module+"internal/node/workload", module+"internal/fabric/lab")
}
