package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is CycloneDX's own, which the library brings along.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for name, url := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schemax.json": "jsf-0.82.schema.json"} {
		f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		doc, err := jsonschema.UnmarshalJSON(f)
		if err == nil {
			err = c.AddResource("http://cyclonedx.org/schema/"+url, doc)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The bill of this test's own program is what CycloneDX's schema wants, has each module that
// is linked, and is the same again. With PROGRAM and SBOM in the environment it is that
// program's, which has been written already.
func TestBill(t *testing.T) {
	program, sbom := os.Getenv("PROGRAM"), os.Getenv("SBOM")
	if program == "" {
		program, _ = os.Executable()
		sbom = filepath.Join(t.TempDir(), "sbom.json")
		if err := run(program, "v1.2.3", sbom); err != nil {
			t.Fatal(err)
		}
		again := sbom + ".again"
		if err := run(program, "v1.2.3", again); err != nil {
			t.Fatal(err)
		}
		if a, b := read(t, sbom), read(t, again); !bytes.Equal(a, b) {
			t.Error("a second bill is another")
		}
	}
	text := read(t, sbom)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := schema(t)
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
	delete(doc.(map[string]any), "specVersion")
	if s.Validate(doc) == nil {
		t.Error("the schema takes what has no specVersion, so it has checked nothing")
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || len(info.Deps) == 0 {
		t.Fatal(info, err)
	}
	listed := doc.(map[string]any)["components"].([]any)
	if len(listed) != len(info.Deps)+1 {
		t.Errorf("%d components of %d modules and the standard library", len(listed), len(info.Deps))
	}
	for _, m := range info.Deps {
		if !bytes.Contains(text, []byte(`"name": "`+m.Path+`"`)) {
			t.Errorf("it does not list %s", m.Path)
		}
	}
	if strings.Contains(string(text), "(devel)") {
		t.Error("a module has no version")
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
