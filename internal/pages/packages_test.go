package pages

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A package's documentation is one comment that begins with its name: an empty line within
// it would leave all that stands before out of go doc, and nobody would notice.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	docs := map[string][]string{} // by directory
	names := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name == "node_modules" || name == "testdata" || len(name) > 1 && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		if here, err := build.Default.MatchFile(filepath.Dir(path), d.Name()); err != nil || !here {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		names[dir] = file.Name.Name
		if file.Doc != nil && !onlyDirectives(file.Doc) {
			docs[dir] = append(docs[dir], file.Doc.Text())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 10 {
		t.Fatalf("%d packages: are they still found?", len(names))
	}
	for dir, name := range names {
		switch doc := docs[dir]; {
		case len(doc) != 1:
			t.Errorf("%s: %d files have a package comment, want one", dir, len(doc))
		case name != "main" && !strings.HasPrefix(doc[0], "Package "+name+" "):
			t.Errorf("%s: the documentation begins %.40q, want Package %s", dir, doc[0], name)
		}
	}
}

// onlyDirectives reports whether a comment is for tools alone, as go:build.
func onlyDirectives(doc *ast.CommentGroup) bool { return strings.TrimSpace(doc.Text()) == "" }
