package consul

import (
	"fmt"
	"net/url"
)

// Opened is what Open makes of an address, with these in its environment.
func Opened(address string, env map[string]string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	d, err := open(u, func(name string) string { return env[name] })
	if err != nil {
		return "", err
	}
	defer d.Close()
	token, err := d.b.token()
	o := d.b.opts
	return fmt.Sprintf("%s %s %s dc=%s ns=%s partition=%s %v", d.b.address, d.b.key, token, o.Datacenter, o.Namespace, o.Partition, o.FeedWait), err
}

// Examine is examine.
var Examine = examine
