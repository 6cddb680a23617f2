package redact_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// What is shown, and what is not.
func TestURL(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://user:pw@host:6379/0?key=web":                                "redis://xxxxx@host:6379/0?key=web",
		"nats://hush@host/b/k":                                               "nats://xxxxx@host/b/k",
		"mongodb://u:p@a:1,b:2/db/c/e?replicaSet=rs0":                        "mongodb://u:xxxxx@a:1,b:2/db/c/e?replicaSet=rs0",
		"mysql://candidate@h/d?election=web":                                 "mysql://candidate@h/d?election=web",
		"postgres://candidate:pa:ss@h/d":                                     "postgres://candidate:xxxxx@h/d",
		"postgres://can%41didate:p@h/d":                                      "postgres://xxxxx@h/d",
		"postgres://:p@h/d":                                                  "postgres://xxxxx@h/d",
		"redis://u:p@ss@host/0?key=web":                                      "redis://xxxxx@host/0?key=web",
		"redis://host/0?key=user@host":                                       "redis://host/0?key=user@host",
		"gs://bucket/user@host/x?acl=user-a@b.c:READER":                      "gs://bucket/user@host/x?acl=user-a@b.c:READER",
		"gs://bucket/object?endpoint=x":                                      "gs://bucket/object?endpoint=x",
		"s3://b/k?endpoint=http%3A%2F%2F127.0.0.1%3A9000":                    "s3://b/k?endpoint=http%3A%2F%2F127.0.0.1%3A9000",
		"s3://b/k?endpoint=http://u:hush@h:1&region=x":                       "s3://b/k?endpoint=http://xxxxx@h:1&region=x",
		"postgres://h/d?election=e&listen_url=postgres%3A%2F%2Fu%3Ahush%40h": "postgres://h/d?election=e&listen_url=postgres://u:xxxxx@h",
		"azblob://a/c/b?sv=1&sig=hush":                                       "azblob://a/c/b?sv=xxxxx&xxxxx",
		"redis://h/0?key=a&password=hu&sh":                                   "redis://h/0?key=a&password=xxxxx&xxxxx",
		"redis://h/0?password=hu#sh":                                         "redis://h/0?password=xxxxx#xxxxx",
		"redis://user:12#hush@host/0?key=a":                                  "redis://xxxxx",
		"redis://user:12/hush@host/0?key=a":                                  "redis://xxxxx",
		"redis://user:12?hush@host/0?key=a":                                  "redis://xxxxx",
		"redis://user:12?hu=sh@host/0?key=a":                                 "redis://xxxxx",
		"s3://AKIA:hu/sh@bucket/key":                                         "s3://xxxxx",
		"redis:hush@host/db":                                                 "redis:xxxxx",
		"nats://user:password@host:4222/bucket/key?parameter=value":          "nats://user:password@host:4222/bucket/key?parameter=value",
		"user:hush@host/db":                                                  "xxxxx",
		"hush":                                                               "xxxxx",
		"file:election.json?create=true":                                     "file:election.json?create=true",
		"file:///home/me@work/election.json":                                 "file:///home/me@work/election.json",
		"":                                                                   "",
	} {
		if got := redact.URL(raw); got != want {
			t.Errorf("URL(%s) = %s, want %s", raw, got, want)
		}
		if got := redact.URL(redact.URL(raw)); got != want {
			t.Errorf("what is redacted changes when it is redacted again: %s, then %s", want, got)
		}
	}
}

// An error keeps what it wraps, and says what is no secret.
func TestError(t *testing.T) {
	if redact.Error(nil, "redis://u:p@h") != nil {
		t.Error("no error has become one")
	}
	raw := "redis://admin:abc@host/0?key=web&pem=here.pem"
	err := redact.Error(fmt.Errorf("ERR user admin with abc, abcd: %w: %s", fs.ErrNotExist, raw), raw)
	want := "ERR user xxxxx with xxxxx, abcd: file does not exist: redis://xxxxx@host/0?key=web&pem=xxxxx"
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	// A database's user is named, and is no secret where a message has it as a word.
	err = redact.Error(errors.New("candidates need GRANT: denied to 'candidate' by hush"), "mysql://candidate:hush@h/d")
	if want := "candidates need GRANT: denied to 'candidate' by xxxxx"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	// What the SDKs of HTTP stores say, which nobody gave a URL of ours.
	err = redact.Error(&url.Error{Op: "Put", URL: "https://a.blob.core.windows.net/c/b?comp=lease&sig=QQQ", Err: errors.New("EOF")})
	if want := `Put "https://a.blob.core.windows.net/c/b?comp=lease&sig=xxxxx": EOF`; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := redact.Text("see https://example.org/a?b."); got != "see https://example.org/a?xxxxx." {
		t.Error(got)
	}
}

// alphabet is of what planted secrets are made: letters that nothing else here has,
// and what URLs are parted by.
const alphabet = "QZJXQZJXQZJX/#?@:&=+% ;\"'\\<,"

// plant makes a secret of data.
func plant(data []byte) string {
	secret := "Q"
	for _, b := range data {
		secret += string(alphabet[int(b)%len(alphabet)])
	}
	return secret + "Z"
}

// places are where a secret may be in a URL.
var places = []string{
	"redis://user:%s@host:6379/0?key=web", "redis://:%s@host/0?key=web", "nats://%s@host:4222/b/k", "s3://id:%s@bucket/key",
	"postgres://host/db?election=web&password=%s", "azblob://a/c/b?sv=1&sig=%s&se=2", "s3://b/k?secret_access_key=%s", "dynamodb://t/k?secret=%s",
	"s3://b/k?endpoint=user:%s@host:9000&region=here", "s3://b/k?endpoint=https://user:%s@host", "gs://b/o?endpoint=http://host/?key=%s",
	"postgres://h/d?election=e&listen_url=postgres://u:%s@h/d", "user:%s@host/db", "%s@host", "%s", "//user:%s@host/db", "redis://host/0?%s", "gs://b/o#%s",
}

// FuzzSecrets plants a secret and looks for any letter of it in what is shown.
func FuzzSecrets(f *testing.F) {
	for i := range places {
		for _, data := range [][]byte{{}, {12, 1}, {13, 1}, {14, 1}, {15, 1}, {16, 1}, {17, 18, 1}, {20, 2}, {21}, {0, 1, 2, 23, 3}, {1, 14, 2, 15, 3, 12, 1, 13}} {
			f.Add(i, data)
		}
	}
	f.Fuzz(func(t *testing.T, place int, data []byte) {
		if len(data) > 40 {
			t.Skip()
		}
		secret := plant(data)
		form := places[uint(place)%uint(len(places))]
		if strings.HasSuffix(form, "?%s") { // a parameter's name is told
			secret = strings.ReplaceAll(secret, "=", "")
		}
		escaped := url.QueryEscape(secret)
		for _, s := range []string{secret, escaped, url.PathEscape(secret)} {
			raw := fmt.Sprintf(form, s)
			if !strings.Contains(form, "://") && strings.Contains(raw, "://") {
				continue // a scheme, and a host, are told
			}
			told := []string{redact.URL(raw)}
			for _, says := range []string{raw, secret, strconv.Quote(secret), fmt.Sprintf("%q", raw)} {
				told = append(told, redact.Error(fmt.Errorf("the driver: (%s)", says), raw).Error())
			}
			if u, err := url.Parse(raw); err == nil {
				told = append(told, redact.URL(u.String()))
				for _, part := range []string{u.Host, u.Path, u.Fragment, u.Opaque, u.RawQuery, u.User.String(), u.Scheme} {
					told = append(told, redact.Error(errors.New("wrong: "+part), u.String(), raw).Error())
				}
				for name, values := range u.Query() {
					told = append(told, redact.Error(fmt.Errorf("parameter %q is %q, or %s", name, values, url.QueryEscape(values[0])), u.String()).Error())
				}
				password, _ := u.User.Password()
				told = append(told, redact.Error(fmt.Errorf("as %q: %s, %s", u.User.Username(), password, url.PathEscape(password)), u.String()).Error())
			} else {
				told = append(told, redact.Error(err, raw).Error())
			}
			for _, line := range told {
				if strings.ContainsAny(line, "QZJX") {
					t.Fatalf("of %s this is told: %s", raw, line)
				}
			}
		}
	})
}
