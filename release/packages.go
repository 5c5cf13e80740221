package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// description describes ndklab in packages and images.
const description = "RDMA clusters on one Linux machine, with emulated adapters and links"

// packages writes the .deb and the .rpm of an architecture.
func (r release) packages(arch string, installed tree) error {
	for _, format := range []string{"deb", "rpm"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(r.info(format, arch, installed))
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if err := writeFile(r.file(arch, format), func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// info returns what a package has. It is new for each format, since packagers change it.
func (r release) info(format, arch string, installed tree) *nfpm.Info {
	info := &nfpm.Info{
		Name: "ndklab", Arch: arch, Platform: "linux", Version: packageVersion(r.version), VersionSchema: "none",
		Section: "net", Priority: "optional", Maintainer: "the authors of ndklab <noreply@github.com>",
		Description: description + "\nA YAML file has the nodes and links. Programs for RDMA run in the nodes.", Homepage: "https://github.com/ndklab/ndklab",
		License: "Apache-2.0", MTime: r.date, DisableGlobbing: true,
	}
	info.RPM.BuildHost = "localhost" // not the name of this machine
	info.RPM.Summary = description
	// Most of a package are programs, which xz makes a fifth smaller than gzip.
	info.Deb.Compression, info.RPM.Compression = "xz", "xz"
	for _, e := range installed {
		if format == "deb" { // Debian's zsh has a folder of its own for packages that are not zsh
			e.path = strings.Replace(e.path, "zsh/site-functions", "zsh/vendor-completions", 1)
		}
		content := &files.Content{
			Source: e.source, Destination: "/" + e.path,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: e.permission(), MTime: r.date},
		}
		if e.source == "" {
			content.Type, content.Source = files.TypeSymlink, e.link
		}
		info.Contents = append(info.Contents, content)
	}
	return info
}

var (
	described  = regexp.MustCompile(`-(\d+)-g([0-9a-f]+)`) // the commits since the tag, and the commit
	prerelease = regexp.MustCompile(`^(\d+\.\d+\.\d+)-`)
)

// packageVersion returns the version of a package, in the order that Debian and RPM give versions: what git describe says of a
// commit after a tag is later than the tag, a prerelease is earlier than its release, and a commit without a tag is earliest.
func packageVersion(version string) string {
	version = strings.Replace(version, "-dirty", "+dirty", 1)
	if !strings.HasPrefix(version, "v") {
		return "0~" + version
	}
	version = described.ReplaceAllString(strings.TrimPrefix(version, "v"), "+$1.g$2")
	return strings.ReplaceAll(prerelease.ReplaceAllString(version, "$1~"), "-", ".")
}
