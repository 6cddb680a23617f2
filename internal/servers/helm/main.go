// Command helm is what tests need of Helm: it lints a chart, and renders it as an
// installation would. It is a module of its own, so that nobody who imports the library
// meets its dependencies.
//
//	helm [-release NAME] [-namespace NAMESPACE] [-values FILE]... CHART
//
// It prints the objects to standard output, as YAML documents. What lint finds, and all but
// advice makes it fail, goes to standard error.
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

func main() {
	log.SetFlags(0)
	options := chartutil.ReleaseOptions{Revision: 1, IsInstall: true}
	flag.StringVar(&options.Name, "release", "release", "the release's name")
	flag.StringVar(&options.Namespace, "namespace", "default", "its namespace")
	values := map[string]any{}
	flag.Func("values", "a file of values, of which a later one goes before an earlier", func(file string) error {
		more, err := chartutil.ReadValuesFile(file)
		if err == nil {
			values = chartutil.MergeTables(more, values)
		}
		return err
	})
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), values, options); err != nil {
		log.Fatal("helm: ", err)
	}
}

func run(dir string, values map[string]any, options chartutil.ReleaseOptions) error {
	found := lint.AllWithKubeVersion(dir, values, options.Namespace, nil)
	for _, m := range found.Messages {
		fmt.Fprintln(os.Stderr, m)
	}
	if found.HighestSeverity > support.InfoSev {
		return fmt.Errorf("%s: lint found the above", dir)
	}
	chart, err := loader.Load(dir)
	if err != nil {
		return err
	}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		text := strings.TrimSpace(rendered[name])
		if ext := filepath.Ext(name); ext == ".yaml" && text != "" {
			fmt.Printf("---\n# %s\n%s\n", name, text)
		}
	}
	return nil
}
