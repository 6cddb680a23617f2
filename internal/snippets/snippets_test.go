// Package snippets checks what the documentation has for Envoy and Kubernetes against their
// own definitions. It is a module of its own because it links those.
package snippets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"                     // what typed_config may name
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3" // too
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"               // too
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "loadbalancers", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// validator is what Envoy's messages have: the rules that Envoy itself goes by.
type validator interface{ ValidateAll() error }

// envoy returns what is wrong with a bootstrap, or in it.
func envoy(text string) (*bootstrapv3.Bootstrap, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(data, b); err != nil {
		return nil, err
	}
	if err := b.ValidateAll(); err != nil {
		return nil, err
	}
	return b, inside(b)
}

// inside validates the messages in each Any, as ValidateAll does not.
func inside(m proto.Message) (err error) {
	m.ProtoReflect().Range(func(_ protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		var all []protoreflect.Message
		switch x := v.Interface().(type) {
		case protoreflect.Message:
			all = append(all, x)
		case protoreflect.List:
			for i := range x.Len() {
				if each, ok := x.Get(i).Interface().(protoreflect.Message); ok {
					all = append(all, each)
				}
			}
		}
		for _, each := range all {
			next := each.Interface()
			if a, ok := next.(*anypb.Any); ok {
				if next, err = a.UnmarshalNew(); err != nil {
					return false
				}
				if v, ok := next.(validator); ok {
					if err = v.ValidateAll(); err != nil {
						return false
					}
				}
			}
			if err = inside(next); err != nil {
				return false
			}
		}
		return true
	})
	return err
}

// envoy.yaml is a bootstrap by Envoy's definitions and rules. That it does what it says is
// not shown: no Envoy has run with it.
func TestEnvoy(t *testing.T) {
	text := read(t, "envoy.yaml")
	b, err := envoy(text)
	if err != nil {
		t.Fatal(err)
	}
	c := b.GetStaticResources().GetClusters()[0]
	if p := c.GetCommonLbConfig().GetHealthyPanicThreshold(); p == nil || p.GetValue() != 0 {
		t.Error("with one healthy candidate of three Envoy would panic, and send to all")
	}
	h := c.GetHealthChecks()[0]
	if h.GetHttpHealthCheck().GetPath() != "/election/leader" || h.GetNoTrafficInterval().AsDuration() != h.GetInterval().AsDuration() {
		t.Errorf("health check %v", h)
	}
	for old, now := range map[string]string{
		"no_traffic_interval":            "no_trafic_interval",
		"unhealthy_threshold: 1":         "",
		"value: 0}":                      "value: 101}",
		"port_value: 8080}}}\n        -": "port_value: 80800}}}\n        -",
		"stat_prefix: app":               "",
		"host_selection_retry_max":       "host_selection_max",
		"router.v3.Router":               "router.v3.Rooter",
	} {
		broken := strings.Replace(text, old, now, 1)
		if broken == text {
			t.Errorf("envoy.yaml does not have %q", old)
		} else if _, err := envoy(broken); err == nil {
			t.Errorf("with %q in place of %q it passes", now, old)
		}
	}
}
