// Package page has the page of `ndklab ui`, as it is built from src: what a browser needs to show a lab, and nothing that
// it would have to fetch from elsewhere. `make page` builds it into dist, which is committed, so that `make` needs no Node.
//
// The page is TypeScript. Start reading at src/app.ts; src/view.ts has what is shown, and src/types.ts what the server says.
package page

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns index.html, and in assets what it refers to.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is valid
	}
	return files
}
