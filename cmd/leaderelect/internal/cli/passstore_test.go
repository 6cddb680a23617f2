package cli

import "testing"

// A URL with a secret is not passed on unless one says so, and another is unless one
// says so.
func TestPassStore(t *testing.T) {
	for raw, pass := range map[string]bool{
		"file:///var/lib/app/election.json":                             true,
		"file:election.json":                                            true,
		"s3://bucket/key?region=eu-central-1":                           true,
		"s3://bucket/key?region=x&endpoint=http://127.0.0.1:9000":       true,
		"nats://host:4222/bucket/key?create=true&storage=memory":        true,
		"postgres://user@host:5432/database?sslmode=disable&election=x": true,
		"redis://host:6379/0?key=election":                              true,
		"postgres://user:s3cret@host:5432/database?election=x":          false,
		"redis://:s3cret@host:6379/0":                                   false,
		"nats://token@host:4222/bucket/key":                             false,
		"nats://user:s3cret@host:4222/bucket/key":                       false,
		"azblob://account/container/blob?sig=s3cret":                    false,
		"postgres://host/database?password=s3cret":                      false,
		"s3://bucket/key?endpoint=http://user:s3cret@host:9000":         false,
		"redis://:s3#cret@host":                                         false,
		"%zz":                                                           false,
	} {
		var p passStore
		if got, _ := p.of(raw); (got != "") != pass || got != "" && got != raw {
			t.Errorf("%s: %q", raw, got)
		}
		for _, yes := range []bool{true, false} {
			if err := p.Set(map[bool]string{true: "true", false: "0"}[yes]); err != nil {
				t.Fatal(err)
			}
			if got, _ := p.of(raw); (got == raw) != yes {
				t.Errorf("%s, %v: %q", raw, yes, got)
			}
		}
	}
	for yes, want := range map[bool]int{false: 1, true: 0} {
		if _, withheld := (&passStore{yes: yes}).of("mysql://host/database?election=x"); len(withheld) != want {
			t.Errorf("--pass-store=%v withholds %q", yes, withheld)
		}
	}
	if (&passStore{}).Set("perhaps") == nil {
		t.Error("perhaps is taken")
	}
}
