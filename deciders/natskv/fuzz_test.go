package natskv

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzContext reads any file as a saved context of the nats command line: what is read has only
// what this package knows, and the error tells nothing of a password.
func FuzzContext(f *testing.F) {
	f.Add([]byte(`{"url": "nats://a,nats://b", "user": "u", "password": "p", "inbox_prefix": "_I"}`))
	f.Add([]byte(`{"url": 3, "creds": "~/c", "socks_proxy": "x"}`))
	f.Add([]byte(`{"nsc": null, "color_scheme": "x"}`))
	f.Add([]byte(`[]`))
	f.Add([]byte("null"))
	dir := f.TempDir()
	file := filepath.Join(dir, "nats", "context", "c.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Setenv("XDG_CONFIG_HOME", dir)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var to target
		if to.fromContext("c") != nil {
			return
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatalf("%q is no context, and was read", data)
		}
		if v := fields["socks_proxy"]; v != nil && v != "" && v != false && v != 0.0 {
			t.Errorf("%q asks for a proxy, and was read without", data)
		}
		if s, is := fields["token"].(string); is && s != to.token {
			t.Errorf("%q has another token than %q", data, to.token)
		}
	})
}
