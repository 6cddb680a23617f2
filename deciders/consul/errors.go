package consul

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

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
