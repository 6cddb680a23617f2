/*
Package fenceredis fences writes to Redis: the check and the write are one script,
which Redis runs as one step.

	err := fenceredis.Set(ctx, client, token, "{orders}:state", value)

The greatest number seen of an election is kept under a key of its own,
{Election}:fence, which must never expire: a fence that is forgotten lets deposed
leaders in. On a cluster a script's keys must be in one slot, so give the keys
that are written the same hash tag. Writes of one's own are commands for [Do], or
a larger script that begins with [Check].

A client that retries (go-redis does, three times, unless MaxRetries is -1) may run a
command twice where an answer was lost. Give it MaxRetries -1 if that matters, as for
INCR.

A fence that was evicted would be a forgotten fence. So if there is none, and maxmemory with a
maxmemory-policy of allkeys-... may have evicted it, every write is refused: such a Redis is a
cache. With noeviction, or volatile-..., keys that do not expire stay.

Redis can forget acknowledged writes at a fail-over of its own, the fence's number
among them: then an old leader's write may pass until the new one has written
again. Where that must not be, fence in a store that keeps its word.
*/
package fenceredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
)

// Check is Lua that begins your script, for a token that fence.Token.Check
// takes: it goes on where the token in ARGV[1] (its number, in decimal) is admitted by the fence in KEYS[1], which it
// raises, and else ends the script with {0, greatest}. Numbers are compared as
// text, since Lua's are exact to 2^53 only. A fence that holds something else than a
// number is an error, and left alone.
const Check = judge + `
if seen ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
`

// judge is the part of Check that only looks.
const judge = `
local seen = redis.call('GET', KEYS[1])
if not seen then
  local memory = redis.pcall('INFO', 'memory')
  if type(memory) == 'table' and (string.find(memory.err or '', "can't run this command", 1, true) or string.find(memory.err or '', 'permissions', 1, true)) then
    return redis.error_reply('there is no fence yet, and whether one may have been evicted this user may not ask: allow it the command INFO')
  end
  if type(memory) == 'string' and string.find(memory, 'maxmemory_policy:allkeys', 1, true) and not string.find(memory, 'maxmemory:0\r', 1, true) then
    return redis.error_reply('there is no fence, and this Redis may have evicted it (maxmemory-policy allkeys-...): set maxmemory-policy to noeviction or volatile-...')
  end
  seen = '0'
end
if seen ~= '0' and not string.find(seen, '^[1-9]%d*$') then
  return redis.error_reply('the fence holds no number: set it to the greatest token that was used, or delete it if there was none')
end
if #seen > #ARGV[1] or (#seen == #ARGV[1] and seen > ARGV[1]) then return {0, seen} end
`

// peek judges, and raises nothing. It answers what the fence holds, too.
var peek = redis.NewScript(judge + "return {1, ARGV[1], seen}")

// script checks, and runs one command. Its answer repeats the token's number, so that
// no other answer passes for it.
var script = redis.NewScript(Check + `
if #ARGV == 1 then return {1, ARGV[1]} end
return {1, ARGV[1], redis.call(unpack(ARGV, 2))}
`)

// Key is where the fence of an election is kept. The braces are a cluster's hash
// tag: keys with the same one are in the same slot.
func Key(election string) string { return "{" + election + "}:fence" }

// maxCommand is how many words a command may have: Lua's stack in Redis has 8,000 places
// (LUAI_MAXCSTACK), some of which are the script's own.
const maxCommand = 7900

// Do runs one command (its name, then its arguments) if token is admitted, and
// returns what it answers. The keys that it names are to be listed in keys, for
// clusters. The command has at most 7,900 words. The error is a *fence.StaleError,
// the error of token.Check, or what Redis says; if the answer was lost, the command may have run.
func Do(ctx context.Context, client redis.Scripter, token fence.Token, keys []string, command ...any) (any, error) {
	return run(ctx, client, script, token, keys, command...)
}

// run runs one of this package's scripts.
func run(ctx context.Context, client redis.Scripter, script *redis.Script, token fence.Token, keys []string, command ...any) (any, error) {
	if err := token.Check(token.Election); err != nil {
		return nil, err
	}
	if len(command) > maxCommand {
		return nil, fmt.Errorf("fenceredis: the command has %d words, and a script runs one of %d at the most: make several of it", len(command), maxCommand)
	}
	keys = append([]string{Key(token.Election)}, keys...)
	number := strconv.FormatUint(uint64(token.Number), 10)
	answer, err := script.Run(ctx, client, keys, append([]any{number}, command...)...).Slice()
	if err != nil {
		return nil, fmt.Errorf("fenceredis: under fence %s with %v: %w", keys[0], token, err)
	}
	if len(answer) >= 2 && answer[0] == int64(1) && answer[1] == number {
		if len(answer) == 2 {
			return nil, nil // Lua drops a nil at the end
		}
		return answer[2], nil
	}
	if len(answer) == 2 && answer[0] == int64(0) {
		greatest, err := strconv.ParseUint(fmt.Sprint(answer[1]), 10, 64)
		if err == nil && greatest > uint64(token.Number) {
			return nil, &fence.StaleError{Token: token, Greatest: leaderelection.ElectionNumber(greatest)}
		}
	}
	return nil, fmt.Errorf("fenceredis: under fence %s with %v: the answer is %v, which is not that of this script", keys[0], token, answer)
}

// Set sets key to value if token is admitted; errors are Do's.
func Set(ctx context.Context, client redis.Scripter, token fence.Token, key string, value any) error {
	_, err := Do(ctx, client, token, []string{key}, "SET", key, value)
	return err
}

// Guard is a fence.Checker that remembers in Redis: for what is not in Redis
// itself. Between its check and the act there is a gap. Make it by NewGuard: the zero
// Guard has no client, and admits nothing.
type Guard struct {
	// Confirm is that of a fence.Guard. Optional. Set it before the first use.
	Confirm func(ctx context.Context, t fence.Token) error

	client   redis.Scripter
	election string
}

var _ fence.Checker = (*Guard)(nil)

// NewGuard returns the Guard of an election. Its methods may be called by any number of
// goroutines at once.
func NewGuard(client redis.Scripter, election string) *Guard {
	return &Guard{client: client, election: election}
}

// Check implements fence.Checker.
func (g *Guard) Check(ctx context.Context, t fence.Token) error {
	if g.Confirm != nil {
		seen, err := g.run(ctx, peek, t)
		if err != nil || seen == strconv.FormatUint(uint64(t.Number), 10) {
			return err
		}
		if err := g.Confirm(ctx, t); err != nil {
			return err
		}
	}
	_, err := g.run(ctx, script, t)
	return err
}

// Peek judges t as Check does, but remembers nothing and does not call Confirm.
func (g *Guard) Peek(ctx context.Context, t fence.Token) error {
	_, err := g.run(ctx, peek, t)
	return err
}

func (g *Guard) run(ctx context.Context, script *redis.Script, t fence.Token) (any, error) {
	if g.client == nil {
		return nil, errors.New("fenceredis: the Guard has no client: make it by NewGuard")
	}
	if err := t.Check(g.election); err != nil {
		return nil, err
	}
	return run(ctx, g.client, script, t, nil)
}
