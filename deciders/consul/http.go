package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/voters"
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

var (
	errNotConsul = errors.New("the response lacks what Consul's responses have: is there a proxy, or something else, at that address?")
	errNotLeader = errors.New("the response is not from the servers' leader: there is no leader at the moment, or something on the way changes the request")
	errTooLong   = errors.New("the response is longer than one with a record")
	errSilent    = errors.New("a query of the feed was not answered in time")
)

// answerError is an answer that says no, or what a transaction was not carried out for.
type answerError struct {
	status int
	text   string
	after  time.Duration // see store.RetryAfter
}

// Error implements error.
func (e *answerError) Error() string {
	const most = 300
	text := strings.Join(strings.Fields(strings.ToValidUTF8(e.text, "?")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	if text == "" {
		return fmt.Sprintf("the answer is %d %s", e.status, http.StatusText(e.status))
	}
	return fmt.Sprintf("the answer is %d %s: %s", e.status, http.StatusText(e.status), text)
}

// says reports whether one of these is in the text.
func (e *answerError) says(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(e.text, part) })
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	var no *answerError
	switch text := err.Error(); {
	case errors.As(err, &no):
		v := b.judgeAnswer(no)
		v.After = no.after
		return v
	case store.BadCertificate(err):
		return store.Permanent("trust the authority of the agent's certificate (tls_ca in an address), and connect by a name that it has")
	case strings.Contains(text, "server gave HTTP response to HTTPS client"), strings.Contains(text, "first record does not look like a TLS handshake"):
		return store.Permanent("the agent does not speak TLS on this port: its port for that is ports.https, usually 8501")
	case strings.Contains(text, "remote error: tls: "):
		return store.Permanent("show the agent a client certificate that it accepts (tls_cert and tls_key in an address)")
	}
	return store.Verdict{}
}

func (b *backend) judgeAnswer(no *answerError) store.Verdict {
	switch {
	case no.says("Permission denied", "ACL not found"):
		return store.Denied(fmt.Sprintf("the token needs the rule key %q { policy = \"write\" }, an observer's \"read\"; "+
			"an address has it as a password (:TOKEN@host) or by token_file, else CONSUL_HTTP_TOKEN in the environment", b.key))
	case no.says("Endpoint is blocked", "Access is restricted"):
		return store.Permanent("the agent's configuration forbids it: http_config.block_endpoints must not have /v1/kv or /v1/txn, and allow_write_http_from must have this address")
	case no.says("HTTP request to an HTTPS server"):
		return store.Permanent("the agent speaks TLS on this port: its address begins with https:// (tls=true in an address)")
	case no.says("Consul Enterprise feature"):
		return store.Permanent("leave Namespace and Partition empty")
	case no.status == http.StatusRequestEntityTooLarge:
		return store.Permanent("keep ConnectionParams and HostPort short, or raise limits.kv_max_value_size and limits.txn_max_req_len in the agent's configuration")
	case no.status == http.StatusTooManyRequests:
		return store.Passing("Consul limits requests (limits and http_max_conns_per_client in its configuration)")
	case no.says("No path to datacenter"):
		return store.Passing("the datacenter cannot be reached: is its name right?")
	case no.says("No cluster leader", "leadership lost", "not the leader", "Not ready to serve consistent reads", "No known Consul servers"):
		return store.Passing("the servers have no leader just now, or most of them are away")
	case no.status == http.StatusNotFound || no.status < 400:
		return store.Passing(errNotConsul.Error())
	}
	return store.Verdict{}
}

// WhyLate says why a call may have been late.
func (b *backend) WhyLate() string { return "the agent at " + b.address.Host + " has not answered" }

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks for the list of servers, which needs no
// permission.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var peers []string
	err := d.election.Ready(ctx)
	if err == nil {
		var a *answer
		switch a, err = d.b.call(ctx, http.MethodGet, "/v1/status/peers", url.Values{}, nil); {
		case err != nil:
		case a.status != http.StatusOK:
			err = a.refusal(string(a.body))
		default:
			err = a.decode(&peers)
		}
	}
	if err == nil && len(peers) == 0 {
		err = errNotConsul
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the servers of", err)
	}
	return voters.Examine(len(peers), "there is one server, which in -dev mode keeps all in memory", "there are %d servers"), nil
}
