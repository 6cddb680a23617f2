package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// How a script has ended: the first element of its answer, which the version and the record follow.
const (
	done    = 1  // read, or written
	refused = 0  // the version is another
	absent  = -1 // there is no key
	foreign = -2 // there is a hash, and neither field in it
)

// All scripts end their answer with their last argument, a text that no other
// request has: an answer to another request, as a proxy may mix them up, is none.

// readScript reads. It is a script, and not HMGET, so that it goes to the master
// even if the client sends its reads to replicas: a feed's read must not be
// older than its subscription.
const readScript = `
local r = redis.call('HMGET', KEYS[1], 'version', 'record')
if r[1] or r[2] then return {1, r[1] or '', r[2] or '', ARGV[1]} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {-2, '', '', ARGV[1]} end
return {-1, '', '', ARGV[1]}`

// writeScript writes if the version is ARGV[1] (empty: if there is no key).
// ARGV[2] is the record, ARGV[3] the channel. The new version is the time and
// ARGV[4], which is never the same twice.
const writeScript = `
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

// touchScript writes the version ARGV[1] over itself, so that the WAIT that follows has something to wait
// for. It uses only commands of the other scripts, so missing permissions show before a replica
// fails.
const touchScript = `
if redis.call('HMGET', KEYS[1], 'version')[1] ~= ARGV[1] then return {0, '', '', ARGV[2]} end
redis.call('HSET', KEYS[1], 'version', ARGV[1])
return {1, ARGV[1], '', ARGV[2]}`

// answer is what a script has answered.
type answer struct {
	status   int64
	version  string
	record   string
	replicas int64 // that have it, if WAIT was asked
}

// command is an EVAL that the client does not retry on its own: a write that had
// landed would be refused the second time.
type command struct{ *redis.Cmd }

// NoRetry is asked by the client.
func (command) NoRetry() bool { return true }

// maxCalls is how many calls of one handle may be under way, those included that
// were given up: a call of go-redis cannot be interrupted, and ends by the
// client's own timeouts.
const maxCalls = 16

// own is what a handle knows of its own calls.
type own struct {
	confirmed   atomic.Pointer[version] // the last of its writes that the replicas have
	leaderships store.Recent            // the Incarnations for which it has claimed the record
	calls       within.Calls
	// Requests, and the versions that they write, have a mark that no other handle's have, and a
	// number.
	mark  string
	asked atomic.Uint64
}

func newOwn() *own { return &own{calls: make(within.Calls, maxCalls), mark: rand.Text()[:16]} }

// eval runs a script on the key, in one round trip: EVAL, and not EVALSHA, which
// takes two if the server has forgotten the script. Replicas is how many to
// wait for.
func (b *backend) eval(ctx context.Context, script string, replicas int, args ...any) (answer, error) {
	return within.Do(ctx, b.calls, func() (answer, error) {
		mark := fmt.Sprintf("%s-%d", b.mark, b.asked.Add(1))
		cmd := command{redis.NewCmd(ctx, append(append([]any{"eval", script, 1, b.key}, args...), mark)...)}
		if replicas <= 0 {
			if err := b.client.Process(ctx, cmd); err != nil {
				return answer{}, err
			}
			return parse(cmd.Val(), mark)
		}
		n, err := b.evalAndWait(ctx, cmd, replicas)
		if cmd.Err() != nil {
			return answer{}, cmd.Err()
		}
		a, parseErr := parse(cmd.Val(), mark)
		if a.status == done {
			// Where the script has written nothing it does not matter what the
			// replicas have.
			parseErr = errors.Join(parseErr, err)
		}
		a.replicas = n
		return a, parseErr
	})
}

// evalAndWait sends WAIT after a command on the same connection, and returns how
// many replicas have what it wrote.
func (b *backend) evalAndWait(ctx context.Context, cmd redis.Cmder, replicas int) (int64, error) {
	client, err := b.master(ctx)
	if err != nil {
		cmd.SetErr(err)
		return 0, err
	}
	pipe := client.Pipeline()
	_ = pipe.Process(ctx, cmd)
	wait := pipe.Do(ctx, "wait", replicas, b.opts.WaitTimeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	if moved(cmd.Err()) {
		if c, ok := b.client.(*redis.ClusterClient); ok {
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

// master returns the client of the one server that has the key.
func (b *backend) master(ctx context.Context) (redis.UniversalClient, error) {
	if c, ok := b.client.(clusterClient); ok {
		return c.MasterForKey(ctx, b.key)
	}
	return b.client, nil
}

// parse reads the answer of a script that was sent with this mark.
func parse(v any, mark string) (answer, error) {
	a, ok := v.([]any)
	if !ok || len(a) != 4 {
		return answer{}, fmt.Errorf("the script's answer is %v, not four values", v)
	}
	n, ok1 := a[0].(int64)
	ver, ok2 := a[1].(string)
	rec, ok3 := a[2].(string)
	if !ok1 || !ok2 || !ok3 {
		return answer{}, fmt.Errorf("the script's answer is %v: not a number and texts", v)
	}
	if a[3] != mark {
		return answer{}, fmt.Errorf("the answer is that of another request (%v, not %s): something before the server mixes them up", a[3], mark)
	}
	return answer{status: n, version: ver, record: rec}, nil
}

// moved says that the server is not, or no longer, the key's master.
func moved(err error) bool {
	var server redis.Error
	return errors.As(err, &server) && (strings.HasPrefix(server.Error(), "MOVED ") || strings.Contains(server.Error(), "READONLY"))
}
