// Sbom writes the software bill of materials of a Go program, in CycloneDX's JSON:
//
//	sbom [-version v1.2.3] -o leaderelect.cdx.json bin/leaderelect
//
// It goes by what Go's linker has written into the program: the modules that are linked, with
// their versions and go.sum's sums, the toolchain, and the commit. So it needs neither network
// nor source, and lists nothing that is only in go.mod. What it does not know are licenses.
// The same program gives the same file.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

func main() {
	version := flag.String("version", "", "the program's version; also of the modules of this repository that have none in go.work")
	out := flag.String("o", "", "the file to write")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: sbom [-version VERSION] -o FILE PROGRAM")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 || *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program, version, out string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	versions, err := released(version)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	bom := bill(info, version, versions, sha256.Sum256(data))
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		_ = f.Close()
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return f.Close()
}

// released are the versions that go.work has of this repository's modules, once there is a release: of
// programs that have a version, since only those are built in the workspace.
func released(version string) (map[string]string, error) {
	if version == "" {
		return nil, nil
	}
	root, err := repo.Find()
	if err != nil {
		return nil, err
	}
	r, err := repo.Load(root)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(r.Versions, func(_, v string) bool { return v == "v0.0.0" })
	return r.Versions, nil
}

// bill is the bill of a program of which Go's linker says info, and with that checksum.
func bill(info *buildinfo.BuildInfo, version string, versions map[string]string, sum [sha256.Size]byte) *cdx.BOM {
	if version != "" {
		info.Main.Version = version // Go's own is a pseudo-version, if no tag is there yet
	}
	main := component(info.Main, version)
	main.Type, main.Name = cdx.ComponentTypeApplication, path.Base(info.Path)
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	meta := &cdx.Metadata{Component: &main}
	properties := []cdx.Property{}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			meta.Timestamp = s.Value
		}
		if s.Value != "" && s.Key != "DefaultGODEBUG" {
			properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	main.Properties = &properties
	std := component(debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}, "")
	parts := []cdx.Component{std}
	for _, m := range info.Deps {
		if m.Replace != nil && !strings.HasPrefix(m.Replace.Path, ".") {
			m = m.Replace
		}
		parts = append(parts, component(*m, cmp.Or(versions[m.Path], version)))
	}
	var refs []string
	for _, c := range parts {
		refs = append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid(sum)
	bom.Metadata, bom.Components = meta, &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom
}

// component is a module. One of the workspace, which has no version of its own, has the one
// given.
func component(m debug.Module, version string) cdx.Component {
	if version != "" && (m.Version == "" || m.Version == "(devel)" || m.Version == "v0.0.0") {
		m.Version, m.Sum = version, ""
	}
	purl := "pkg:golang/" + m.Path
	if m.Version != "" {
		purl += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	}
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: m.Path, Version: m.Version, PackageURL: purl}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// uuid is made of the program's checksum, in the form of version 8, which is for any such.
func uuid(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
