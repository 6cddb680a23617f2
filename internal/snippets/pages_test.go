package snippets

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// block is a fenced block of a page, with the comment above it.
var block = regexp.MustCompile("(?ms)(?:^<!-- ([^\\n]+) -->\\n)?^```(yaml|console)\\n(.*?)^```$")

// setting is the first cell of a row of a table, and word what may be a value of the chart in it.
var (
	setting = regexp.MustCompile("(?m)^\\| (`[^|]+) \\| ")
	word    = regexp.MustCompile("`([a-z]\\w+(?:\\.[a-z]\\w*)*)`")
)

// has reports whether the chart has a setting of that name.
func has(chart map[string]any, name []string) bool {
	value, is := chart[name[0]]
	if !is || len(name) == 1 {
		return is
	}
	inner, is := value.(map[string]any)
	return is && has(inner, name[1:])
}

// What is YAML on a page of docs is what the chart's values may be, or what the API server takes
// with strict validation of fields. What is typed in a cluster names what is there.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	chart := values(t)
	found := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range setting.FindAllStringSubmatch(string(text), -1) {
			if filepath.Base(page) != "kubernetes.md" {
				break
			}
			for _, name := range word.FindAllStringSubmatch(m[1], -1) {
				found["setting"]++
				if !has(chart, strings.Split(name[1], ".")) {
					t.Errorf("%s: the chart has no setting %s", page, name[1])
				}
			}
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			note, lang, text := m[1], m[2], m[3]
			found[lang]++
			switch {
			case lang == "console":
				for line := range strings.Lines(text) {
					if err := typed(strings.TrimSpace(line)); err != nil {
						t.Errorf("%s: %v", page, err)
					}
				}
			case note == "values.yaml":
				var v map[string]any
				if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
					t.Errorf("%s: %v", page, err)
				}
				for _, wrong := range unknown("", v, chart) {
					t.Errorf("%s: the chart has no setting %s", page, wrong)
				}
			default:
				for object := range strings.SplitSeq(text, "\n---\n") {
					if err := validate(object); err != nil {
						t.Errorf("%s: %v:\n%s", page, err, object)
					}
				}
			}
		}
	}
	if found["setting"] < 3 || found["yaml"] < 1 || found["console"] < 1 {
		t.Errorf("found %v: are they still found?", found)
	}
}

// values are the chart's own.
func values(t *testing.T) (v map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "helm", "leaderelect", "values.yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// passed are the settings whose further members the chart hands on as they are, and to what.
var passed = map[string]func() any{
	"app.": func() any { return new(corev1.Container) },
	"pod.": func() any { return new(corev1.PodSpec) },
}

// passes reports whether the chart hands on the setting.
func passes(at, name string, value any) bool {
	into := passed[at]
	if into == nil {
		return false
	}
	text, err := yaml.Marshal(map[string]any{name: value})
	return err == nil && yaml.UnmarshalStrict(text, into()) == nil
}

// unknown are the settings that a chart does not have. What is empty there may have any members.
func unknown(at string, v, chart map[string]any) (wrong []string) {
	for name, value := range v {
		theirs, is := chart[name]
		if !is {
			if !passes(at, name, value) {
				wrong = append(wrong, at+name)
			}
			continue
		}
		mine, is1 := value.(map[string]any)
		inner, is2 := theirs.(map[string]any)
		if is1 != is2 {
			wrong = append(wrong, at+name+" of that kind")
		} else if is1 && len(inner) > 0 {
			wrong = append(wrong, unknown(at+name+".", mine, inner)...)
		}
	}
	return wrong
}

// validate returns what is wrong with an object of Kubernetes.
func validate(text string) error {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		return err
	}
	into := map[string]any{
		"Deployment": &appsv1.Deployment{}, "Service": &corev1.Service{}, "ServiceAccount": &corev1.ServiceAccount{}, "Pod": &corev1.Pod{},
		"Lease": &coordinationv1.Lease{}, "Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
	}[kind.Kind]
	if into == nil {
		return fmt.Errorf("nobody here knows the kind %q", kind.Kind)
	}
	return yaml.UnmarshalStrict([]byte(text), into)
}

// typed returns what is wrong with a line that is typed in a cluster, with the chart installed as
// web.
func typed(line string) error {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "$" {
		return fmt.Errorf("%q is no line that is typed", line)
	}
	switch command := strings.Join(words[1:], " "); {
	case strings.HasPrefix(command, "helm install web deploy/"):
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(words[4]), "Chart.yaml")); err != nil {
			return err
		}
	case command == "kubectl get lease web":
	case command == "kubectl get endpointslice web-leader":
		services, err := os.ReadFile(filepath.Join(root, "deploy", "helm", "leaderelect", "templates", "services.yaml"))
		if err != nil || !strings.Contains(string(services), "kind: EndpointSlice") {
			return fmt.Errorf("the chart makes no EndpointSlice: %w", err)
		}
	default:
		return fmt.Errorf("no test knows what %q does", line)
	}
	return nil
}
