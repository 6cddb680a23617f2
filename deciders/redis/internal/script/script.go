// Package script runs the scripts that read and write a record in Redis.
package script

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Status is how a script has ended: the first element of its answer, which the
// version and the record follow.
type Status int64

const (
	Done    Status = 1  // read, or written
	Refused Status = 0  // the version is another
	Absent  Status = -1 // there is no key
	Foreign Status = -2 // there is a hash, and neither field in it
)

// All scripts end their answer with their last argument, a text that no other
// request has: an answer to another request, as a proxy may mix them up, is none.

// Read reads. It is a script, and not HMGET, so that it goes to the master
// even if the client sends its reads to replicas: a feed's read must not be
// older than its subscription.
const Read = `
local r = redis.call('HMGET', KEYS[1], 'version', 'record')
if r[1] or r[2] then return {1, r[1] or '', r[2] or '', ARGV[1]} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {-2, '', '', ARGV[1]} end
return {-1, '', '', ARGV[1]}`

// Write writes if the version is ARGV[1] (empty: if there is no key).
// ARGV[2] is the record, ARGV[3] the channel. The new version is the time and
// ARGV[4], which is never the same twice.
const Write = `
local r = redis.call('HMGET', KEYS[1], 'version', 'record')
if not r[1] and not r[2] then
  if redis.call('EXISTS', KEYS[1]) == 1 then return {-2, '', '', ARGV[4]} end
  if ARGV[1] ~= '' then return {0, '', '', ARGV[4]} end
elseif r[1] ~= ARGV[1] or ARGV[1] == '' then
  return {0, r[1] or '', r[2] or '', ARGV[4]}
end
local t = redis.call('TIME')
local version = t[1] .. string.format('%06d', tonumber(t[2])) .. '-' .. ARGV[4]
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'version', version)
redis.call('PERSIST', KEYS[1])
redis.call('PUBLISH', ARGV[3], version .. '\n' .. ARGV[2])
return {1, version, '', ARGV[4]}`

// Touch writes the version ARGV[1] over itself, so that the WAIT that follows has something to wait
// for. It uses only commands of the other scripts, so missing permissions show before a replica
// fails.
const Touch = `
if redis.call('HMGET', KEYS[1], 'version')[1] ~= ARGV[1] then return {0, '', '', ARGV[2]} end
redis.call('HSET', KEYS[1], 'version', ARGV[1])
return {1, ARGV[1], '', ARGV[2]}`

// Answer is what a script has answered.
type Answer struct {
	Status   Status
	Version  string
	Record   string
	Replicas int64 // that have it, if WAIT was asked
}

// command is an EVAL that the client does not retry on its own: a write that had
// landed would be refused the second time.
type command struct{ *redis.Cmd }

// NoRetry is asked by the client.
func (command) NoRetry() bool { return true }

// Runner runs scripts on one key. Make it by New. Its methods may be called by several goroutines
// at once.
type Runner struct {
	client redis.UniversalClient
	key    string
	wait   time.Duration // for replicas
	calls  within.Calls

	// Requests, and the versions that they write, have a mark that no other
	// Runner's have, and a number.
	mark  string
	asked *atomic.Uint64
}

// New returns a Runner that waits for replicas for at most wait, and has at most this many calls
// under way, including those that were given up.
func New(client redis.UniversalClient, key string, wait time.Duration, calls int) *Runner {
	return &Runner{client: client, key: key, wait: wait, calls: make(within.Calls, calls), mark: rand.Text()[:16], asked: new(atomic.Uint64)}
}

// Inherit has r take over from another Runner of the same key, whose client is given up: r knows what
// that one wrote, and its calls under way count. Call it before r is used.
func (r *Runner) Inherit(from *Runner) {
	r.calls, r.mark, r.asked = from.calls, from.mark, from.asked
}

// Wrote reports whether this Runner, or one that it took over from, wrote the version.
func (r *Runner) Wrote(version string) bool { return strings.Contains(version, "-"+r.mark+"-") }

// Do runs f as one of the Runner's calls, for no longer than ctx lasts.
func Do[T any](ctx context.Context, r *Runner, f func() (T, error)) (T, error) {
	return within.Do(ctx, r.calls, f)
}

// Eval runs a script on the key, in one round trip: EVAL, and not EVALSHA, which
// takes two if the server has forgotten the script. Replicas is how many to
// wait for.
func (r *Runner) Eval(ctx context.Context, script string, replicas int, args ...any) (Answer, error) {
	return within.Do(ctx, r.calls, func() (Answer, error) {
		mark := fmt.Sprintf("%s-%d", r.mark, r.asked.Add(1))
		cmd := command{redis.NewCmd(ctx, append(append([]any{"eval", script, 1, r.key}, args...), mark)...)}
		if replicas <= 0 {
			if err := r.client.Process(ctx, cmd); err != nil {
				return Answer{}, err
			}
			return parse(cmd.Val(), mark)
		}
		n, err := r.evalAndWait(ctx, cmd, replicas)
		if cmd.Err() != nil {
			return Answer{}, cmd.Err()
		}
		a, parseErr := parse(cmd.Val(), mark)
		if a.Status == Done {
			// Where the script has written nothing it does not matter what the
			// replicas have.
			parseErr = errors.Join(parseErr, err)
		}
		a.Replicas = n
		return a, parseErr
	})
}

// evalAndWait sends WAIT after a command on the same connection, and returns how
// many replicas have what it wrote.
func (r *Runner) evalAndWait(ctx context.Context, cmd redis.Cmder, replicas int) (int64, error) {
	client, err := r.Master(ctx)
	if err != nil {
		cmd.SetErr(err)
		return 0, err
	}
	pipe := client.Pipeline()
	_ = pipe.Process(ctx, cmd)
	wait := pipe.Do(ctx, "wait", replicas, max(r.wait, time.Millisecond).Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	if moved(cmd.Err()) {
		if c, ok := r.client.(*redis.ClusterClient); ok {
			c.ReloadState(ctx) // the next one will find it
		}
	}
	n, err := wait.Int64()
	if err != nil {
		return 0, fmt.Errorf("it is written, but whether the replicas have it (WAIT) is not known: %w", err)
	}
	return n, nil
}

// clusterClient is what finds the master of a key.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// Master returns the client of the one server that has the key.
func (r *Runner) Master(ctx context.Context) (redis.UniversalClient, error) {
	if c, ok := r.client.(clusterClient); ok {
		return c.MasterForKey(ctx, r.key)
	}
	return r.client, nil
}

// parse reads the answer of a script that was sent with this mark.
func parse(v any, mark string) (Answer, error) {
	a, ok := v.([]any)
	if !ok || len(a) != 4 {
		return Answer{}, fmt.Errorf("the script's answer is %v, not four values", v)
	}
	n, ok1 := a[0].(int64)
	ver, ok2 := a[1].(string)
	rec, ok3 := a[2].(string)
	if !ok1 || !ok2 || !ok3 {
		return Answer{}, fmt.Errorf("the script's answer is %v: not a number and texts", v)
	}
	if a[3] != mark {
		return Answer{}, fmt.Errorf("the answer is that of another request (%v, not %s): something before the server mixes them up", a[3], mark)
	}
	return Answer{Status: Status(n), Version: ver, Record: rec}, nil
}

// moved says that the server is not, or no longer, the key's master.
func moved(err error) bool {
	var server redis.Error
	return errors.As(err, &server) && (strings.HasPrefix(server.Error(), "MOVED ") || strings.Contains(server.Error(), "READONLY"))
}
