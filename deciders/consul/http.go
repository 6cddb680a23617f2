package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// maxAnswer is how many bytes of an answer are read: a record in base64, twice.
const maxAnswer = store.MaxSize * 8 / 3

// answer is what came.
type answer struct {
	status int
	header http.Header
	body   []byte
	secret string // the token that was sent
}

// call makes one request. Whoever gives it up does not stop the servers: what they have
// begun to write they write, and show no sooner.
func (b *backend) call(ctx context.Context, method, path string, q url.Values, body []byte) (*answer, error) {
	set(q, "dc", b.opts.Datacenter)
	u := *b.address
	u.Path, u.RawPath, u.RawQuery = strings.TrimSuffix(u.Path, "/")+path, "", q.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := b.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	response, err := b.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := &answer{status: response.StatusCode, header: response.Header, secret: token}
	if a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		return nil, fmt.Errorf("the answer broke off: %w", err)
	}
	return a, nil
}

// set is for parameters that may be empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func (b *backend) token() (string, error) {
	if b.opts.Token == nil {
		return "", nil
	}
	token, err := b.opts.Token()
	if err == nil && strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		err = store.Wrong("it has a letter that no token has: give it as it is, in one line")
	}
	if err != nil {
		return "", fmt.Errorf("the ACL token: %w", err)
	}
	return token, nil
}

// index is the index of what was read. It is an error if the answer lacks what a read's
// answer always has, or does not come from the servers' leader.
func (a *answer) index() (uint64, error) {
	index, err := strconv.ParseUint(a.header.Get("X-Consul-Index"), 10, 64)
	switch leader, last := a.header.Get("X-Consul-KnownLeader"), a.header.Get("X-Consul-LastContact"); {
	case err != nil || index == 0 || leader == "" || last == "":
		return 0, errNotConsul
	case leader != "true" || last != "0":
		return 0, errNotLeader
	}
	return index, nil
}

// decode reads the body of an answer.
func (a *answer) decode(into any) error {
	if len(a.body) > maxAnswer {
		return errTooLong
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("%w (%w)", errNotConsul, err)
	}
	return nil
}

// refusal is the error of an answer that says no, in these words.
func (a *answer) refusal(words string) error {
	if a.secret != "" {
		words = strings.ReplaceAll(words, a.secret, redact.Hidden)
	}
	return &answerError{a.status, words, store.RetryAfter(a.header.Get("Retry-After"))}
}
