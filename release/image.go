package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes an OCI image of one layer as a tar of its layout, which podman, skopeo and docker load. It begins from nothing:
// the programs are static, and a node shows a command the files of the image.
func (r release) image(arch string, installed tree, scratch string) error {
	var content bytes.Buffer
	if err := forImage(installed).writeTar(&content, r.date); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9))
	if err != nil {
		return err
	}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make dist"}})
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config.Entrypoint, config.Config.Cmd = []string{"/usr/bin/ndklab"}, []string{"--help"}
	config.Config.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "ndklab", "org.opencontainers.image.description": description,
		"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.created": r.date.Format(time.RFC3339),
		"org.opencontainers.image.source":  "https://github.com/ndklab/ndklab", "org.opencontainers.image.licenses": "Apache-2.0",
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	folder := filepath.Join(scratch, "layout")
	index, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	// By the first podman names the image, by the second docker does.
	name := "ndklab:" + strings.TrimPrefix(r.version, "v")
	names := map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": "docker.io/library/" + name}
	if err := index.AppendImage(image, layout.WithAnnotations(names), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch})); err != nil {
		return fmt.Errorf("write its layout: %w", err)
	}
	files, err := readTree(folder)
	if err != nil {
		return err
	}
	return writeFile(r.file(arch, "oci.tar"), func(w io.Writer) error { return files.writeTar(w, r.date) })
}

// forImage returns what an image has of a package: programs, licences and an example. The folders are those that containers
// mount over, that of labs' states, and that of temporary files.
func forImage(installed tree) tree {
	t := tree{{path: "proc/", mode: fs.ModeDir | 0o755}, {path: "sys/", mode: fs.ModeDir | 0o755}, {path: "dev/", mode: fs.ModeDir | 0o755},
		{path: "run/", mode: fs.ModeDir | 0o755}, {path: "tmp/", mode: fs.ModeDir | fs.ModeSticky | 0o777}}
	for _, e := range installed {
		if !strings.HasPrefix(e.path, "usr/share/") || strings.HasPrefix(e.path, "usr/share/doc/ndklab/") {
			t = append(t, e)
		}
	}
	return t
}
