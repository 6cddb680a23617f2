package natskv_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The subjects that the package comment lists, for the bucket and key of these
// tests.
var (
	lookUp = "$JS.API.STREAM.INFO.KV_elections"
	get    = "$JS.API.DIRECT.GET.KV_elections.$KV.elections.billing"
	put    = "$KV.elections.billing"
	watch  = "$JS.API.CONSUMER.CREATE.KV_elections.*.$KV.elections.billing"
	make1  = "$JS.API.INFO"
	make2  = "$JS.API.STREAM.CREATE.KV_elections"
)

// restricted returns a client of a user "u" that may publish to these subjects
// and receive answers, and one of a user that may do anything.
func restricted(t *testing.T, publish ...string) (user, admin jetstream.JetStream) {
	t.Helper()
	return restrictedTo(t, "_INBOX.>", publish...)
}

func restrictedTo(t *testing.T, inbox string, publish ...string) (user, admin jetstream.JetStream) {
	t.Helper()
	s := natstest.Start(t, configured(t, fmt.Sprintf(`accounts { main { jetstream: enabled, users: [
		{user: admin, password: p},
		{user: u, password: p, permissions: {publish: ["%s"], subscribe: [%q]}}
	] } }`, strings.Join(publish, `", "`), inbox)))
	return s.JetStream(t, nats.UserInfo("u", "p")), s.JetStream(t, nats.UserInfo("admin", "p"))
}

// What the package comment lists is enough.
func TestPermissionsListedSuffice(t *testing.T) {
	user, admin := restricted(t, lookUp, get, put, watch)
	makeBucket(t, admin)
	candidate(t, natskv.NewDecider(user, bucket, key, nil))
}

func TestPermissionsListedSufficeToCreate(t *testing.T) {
	user, _ := restricted(t, lookUp, get, put, watch, make1, make2)
	candidate(t, natskv.NewDecider(user, bucket, key, &natskv.Options{Create: &jetstream.KeyValueConfig{Replicas: 1}}))
}

// candidate does with d all that a campaign does.
func candidate(t *testing.T, d *natskv.Decider) {
	t.Helper()
	feed := feedtest.Follow(t, d)
	if n := feedtest.Next(t, feed); n.Err != nil {
		t.Fatalf("Changes: %v", n.Err)
	}
	feedtest.Write(t, d, 2, feedtest.Write(t, d, 1, feedtest.Read(t, d).Token))
	loses(t, d, nil)
	for n := feedtest.Next(t, feed); ; n = feedtest.Next(t, feed) {
		if n.Err != nil {
			t.Fatalf("Changes: %v", n.Err)
		}
		if n.ElectionNumber == 2 {
			return
		}
	}
}

// What is not permitted is an ErrPermanent that names it, long before the call's
// time is over, though the server answers no such request.
func TestPermissionMissing(t *testing.T) {
	doing := map[string]func(t *testing.T, d *natskv.Decider) error{
		"ReadCurrent": func(t *testing.T, d *natskv.Decider) error {
			_, err := d.ReadCurrent(t.Context())
			return err
		},
		"WriteEntry": func(t *testing.T, d *natskv.Decider) error {
			_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
			return err
		},
		"Changes": func(t *testing.T, d *natskv.Decider) error {
			for _, err := range d.Changes(t.Context()) {
				return err
			}
			return nil
		},
	}
	for _, c := range []struct {
		name, inbox string
		publish     []string
		fail        string // what fails
		say         string
	}{
		{"look up", "_INBOX.>", []string{get, put, watch}, "ReadCurrent WriteEntry Changes", lookUp},
		{"read", "_INBOX.>", []string{lookUp, put, watch}, "ReadCurrent", get},
		{"write", "_INBOX.>", []string{lookUp, get, watch}, "WriteEntry", put},
		{"follow", "_INBOX.>", []string{lookUp, get, put}, "Changes", "$JS.API.CONSUMER.CREATE.KV_elections"},
		{"answers", "_ELSEWHERE.>", []string{lookUp, get, put, watch}, "ReadCurrent WriteEntry Changes", "_INBOX"},
	} {
		t.Run(c.name, func(t *testing.T) {
			user, admin := restrictedTo(t, c.inbox, c.publish...)
			kv := makeBucket(t, admin)
			d := natskv.NewDecider(user, bucket, key, nil)
			for what, do := range doing {
				begin := time.Now()
				err := do(t, d)
				if !strings.Contains(c.fail, what) {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				feedtest.Permanent(t, err, bucket, key, c.say)
				if !errors.Is(err, leaderelection.ErrDenied) {
					t.Errorf("%s: %v does not wrap ErrDenied", what, err)
				}
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("%s hides what the client said: %v", what, err)
				}
				if took := time.Since(begin); took > 3*time.Second {
					t.Errorf("%s took %v to say so", what, took)
				}
			}
			if _, err := kv.Get(t.Context(), key); strings.Contains(c.fail, "WriteEntry") && !errors.Is(err, jetstream.ErrKeyNotFound) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// A permission that was missing, and has been given since, is not held against
// later failures.
func TestPermissionMissingIsForgotten(t *testing.T) {
	user, admin := restricted(t, lookUp, get, watch, "$KV.elections.billing2")
	makeBucket(t, admin)
	d := natskv.NewDecider(user, bucket, key, nil)
	if _, err := d.WriteEntry(t.Context(), feedtest.State(1, nil)); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Fatalf("WriteEntry = %v", err)
	}
	feedtest.Read(t, d)
	if err := admin.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	_, err := d.ReadCurrent(t.Context())
	if err == nil || errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("ReadCurrent = %v", err)
	}
}
