package route_test

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// FuzzAddresses takes what a record says of the leader's addresses: what passes can be dialled, and makes
// the URL that is meant; link-local addresses do not pass, however they are written.
func FuzzAddresses(f *testing.F) {
	for _, hp := range []string{"10.0.0.1:80", "[::1]:80", "[fe80::1%25eth0]:80", "[::ffff:169.254.169.254]:80", "a@b:80", "a/b:80", "host:http", "host:0", ":80", "169.254.169.254:80", "0.0.0.0:1", "%31:80", "a b:80"} {
		f.Add(hp, []byte(`{"addresses": {"grpc": ["`+hp+`"]}}`))
	}
	f.Add("host", []byte("[]")) // no port, and no object
	f.Fuzz(func(t *testing.T, hp string, params []byte) {
		for _, a := range append(route.Named("grpc")(leaderelection.RaceEntry{ConnectionParams: params}), hp) {
			if route.CheckHostPort(a) != nil {
				continue
			}
			u, err := url.Parse("http://" + a + "/path")
			if err != nil || u.Host != a || u.Path != "/path" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				t.Errorf("%q makes %v, %v", a, u, err)
				continue
			}
			host, _, err := net.SplitHostPort(a)
			if err != nil || host == "" || host != strings.Trim(host, "[]") {
				t.Errorf("%q cannot be dialled: %q, %v", a, host, err)
			}
			ip := net.ParseIP(strings.SplitN(host, "%", 2)[0])
			if ip != nil && (ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified()) && route.CheckAddress(a) == nil {
				t.Errorf("%q passes", a)
			}
		}
	})
}
