package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/licensedetect/local"
	"github.com/rs/zerolog"
)

// pageLicences has, in ndklab's sources, the packages of npm that the page of `ndklab ui` is bundled of, and their licences.
const pageLicences = "internal/fabric/ui/page/dist/LICENSES.txt"

// standardLibrary is the name of Go's in bills of materials.
const standardLibrary = "std"

// bill returns the bill of materials of an architecture's programs (CycloneDX, JSON), and the licences of what others have
// written. The modules are those that Go has noted in the programs, and not those of go.mod, which has the tests' too.
func (r release) bill(programs tree) (bill, licences []byte, err error) {
	all, err := r.modules(programs)
	if err != nil {
		return nil, nil, err
	}
	folders, err := r.folders()
	if err != nil {
		return nil, nil, err
	}
	components := *all.Components
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.Name, b.Name) })
	var texts bytes.Buffer
	for i := range components {
		text, err := license(&components[i], folders[components[i].Name])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", components[i].Name, err)
		}
		texts.Write(text)
	}
	page, err := os.ReadFile(filepath.Join(r.root, pageLicences))
	if err != nil {
		return nil, nil, err
	}
	texts.Write(page)
	bundled, err := packagesOfPage(page)
	if err != nil {
		return nil, nil, err
	}
	components = append(components, bundled...)
	all.Components = &components
	relate(all)
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(all)
	return out.Bytes(), texts.Bytes(), err
}

// modules returns the bill of the modules in all programs.
func (r release) modules(programs tree) (*cdx.BOM, error) {
	var all *cdx.BOM
	for _, e := range programs {
		if _, err := buildinfo.ReadFile(e.source); err != nil {
			continue // it is written in C, all by ndklab
		}
		generator, err := bin.NewGenerator(e.source, bin.WithLogger(zerolog.Nop()), bin.WithIncludeStdlib(true), bin.WithVersionOverride(r.version))
		if err != nil {
			return nil, err
		}
		one, err := generator.Generate()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.path, err)
		}
		if all == nil {
			all = one
			continue
		}
		for _, component := range *one.Components {
			if !slices.ContainsFunc(*all.Components, func(c cdx.Component) bool { return c.BOMRef == component.BOMRef }) {
				*all.Components = append(*all.Components, component)
			}
		}
	}
	if all == nil {
		return nil, errors.New("there is no program that Go has built")
	}
	all.Metadata.Timestamp, all.Metadata.Properties = r.date.Format(time.RFC3339), nil
	all.Metadata.Component.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	return all, nil
}

// relate says that what ndklab is made of are all the components, and that more is not known.
func relate(bom *cdx.BOM) {
	main := bom.Metadata.Component.BOMRef
	var refs []string
	for _, c := range *bom.Components {
		refs = append(refs, c.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: main, Dependencies: &refs}}
	bom.Compositions = &[]cdx.Composition{{Aggregate: cdx.CompositionAggregateComplete, Dependencies: &[]cdx.BOMReference{cdx.BOMReference(main)}}}
}

// folders returns the folders of modules and of Go's standard library, by their names.
func (r release) folders() (map[string]string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", "all")
	list.Dir, list.Stderr = r.root, os.Stderr
	modules, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find GOROOT: %w", err)
	}
	folders := map[string]string{standardLibrary: strings.TrimSpace(string(goroot))}
	for line := range strings.Lines(string(modules)) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders[path] = folder
	}
	return folders, nil
}

// corrected are licences that the detector takes for others which differ in a sentence. A person has read them.
var corrected = map[string]string{
	standardLibrary:                                 "BSD-3-Clause", // its folder is too large to be searched
	"github.com/coder/websocket":                    "ISC",          // 0BSD has no condition
	"kernel.org/pub/linux/libs/security/libcap/psx": "BSD-3-Clause", // or GPL-2.0-only, as one chooses
	"golang.org/x/net":                              "BSD-3-Clause", // with another name of Google's than most
	"golang.org/x/sync":                             "BSD-3-Clause",
	"golang.org/x/sys":                              "BSD-3-Clause",
}

// licenceFile is a name of files that must go with what is shipped.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// license notes the licence of a component, and returns the texts that its folder has.
func license(c *cdx.Component, folder string) ([]byte, error) {
	if folder == "" {
		return nil, errors.New("its sources are not on this machine: go mod download")
	}
	found := []cdx.License{{ID: corrected[c.Name]}}
	if corrected[c.Name] == "" {
		var err error
		if found, err = local.NewDetector(zerolog.Nop()).Detect(c.Name, c.Version, folder); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no licence is known in %s: what is shipped must have one", folder)
	}
	var ids []string
	c.Licenses = new(cdx.Licenses)
	for _, l := range found {
		*c.Licenses = append(*c.Licenses, cdx.LicenseChoice{License: &cdx.License{ID: l.ID, Name: l.Name}})
		ids = append(ids, cmp.Or(l.ID, l.Name))
	}
	c.Evidence = nil
	var texts bytes.Buffer
	fmt.Fprintf(&texts, "%s %s (%s)\n\n", c.Name, c.Version, strings.Join(ids, ", "))
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file.IsDir() || !licenceFile.MatchString(file.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		texts.Write(bytes.TrimSpace(text))
		texts.WriteString("\n\n")
	}
	fmt.Fprintf(&texts, "%s\n\n", strings.Repeat("-", 80))
	return texts.Bytes(), nil
}

// packageLine is the first line of each package in the page's licences: "uplot 1.6.32 (MIT)".
var packageLine = regexp.MustCompile(`(?m)^(@?[a-z0-9./-]+) (\d+\.\d+\.\d+\S*) \(([A-Za-z0-9.-]+)\)$`)

// packagesOfPage returns the packages of npm that the page's licences list.
func packagesOfPage(licences []byte) ([]cdx.Component, error) {
	var components []cdx.Component
	for _, found := range packageLine.FindAllSubmatch(licences, -1) {
		name, version, id := string(found[1]), string(found[2]), string(found[3])
		url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + version
		components = append(components, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url,
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: id}}},
		})
	}
	if len(components) == 0 {
		return nil, fmt.Errorf("%s lists no package", pageLicences)
	}
	return components, nil
}
