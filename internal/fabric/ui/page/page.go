// Package page has the files of the page that `ndklab ui` serves.
package page

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the files: index.html, and those below assets.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is valid
	}
	return files
}
