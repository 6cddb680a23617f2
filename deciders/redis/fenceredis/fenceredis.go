/*
Package fenceredis fences writes to Redis: the check and the write are one script, which Redis runs
as one step.

	err := fenceredis.Set(ctx, client, token, "{orders}:state", value)

For other writes, pass a command to [Do], or write a larger script that begins with [Check].

The greatest number seen of an election is kept under the key {Election}:fence. On a cluster a
script's keys must be in one slot, so give the keys that you write the same hash tag.

This key must never expire or be evicted: a fence that is forgotten lets deposed leaders in. So if
the fence is missing, and maxmemory with a maxmemory-policy of allkeys-... may have evicted it,
every write is refused. With noeviction or volatile-..., Redis keeps keys that do not expire.

A client that retries (go-redis does, three times, unless MaxRetries is -1) may run a command twice
if a response was lost. Give it MaxRetries -1 if that matters, as for INCR.

A fail-over of Redis can lose acknowledged writes, even the fence's number. Until the new leader has
written again, an old leader's write may then pass. If you cannot tolerate that, fence in a store
that keeps acknowledged writes.
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

// Check is Lua for the beginning of your script. Check the token by fence.Token.Check before, and
// pass its number in decimal as ARGV[1], and the fence's key as KEYS[1]. If the fence admits the
// token, Check raises the fence and goes on. Otherwise it ends the script with {0, greatest}. It
// compares numbers as text, since Lua's are exact only up to 2^53. If the fence does not hold a
// number, the script fails and does not change it.
const Check = judge + `
if seen ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
`

// judge is the part of Check that only looks.
const judge = `
local seen = redis.call('GET', KEYS[1])
if not seen then
  local memory = redis.pcall('INFO', 'memory')
  if type(memory) == 'table' and (string.find(memory.err or '', "can't run this command", 1, true) or string.find(memory.err or '', 'permissions', 1, true)) then
    return redis.error_reply('there is no fence yet, and this user may not ask whether it was evicted: allow it the command INFO')
  end
  if type(memory) == 'string' and string.find(memory, 'maxmemory_policy:allkeys', 1, true) and not string.find(memory, 'maxmemory:0\r', 1, true) then
    return redis.error_reply('there is no fence, and this Redis may have evicted it (maxmemory-policy allkeys-...): set maxmemory-policy to noeviction or volatile-...')
  end
  seen = '0'
end
if seen ~= '0' and not string.find(seen, '^[1-9]%d*$') then
  return redis.error_reply('the fence does not hold a number: set it to the greatest token that was used, or delete it if there was none')
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

// Key returns the key of an election's fence. The braces are a cluster's hash tag: keys with the
// same hash tag are in the same slot.
func Key(election string) string { return "{" + election + "}:fence" }

// maxCommand is how many words a command may have: Lua's stack in Redis has 8,000 places
// (LUAI_MAXCSTACK), some of which are the script's own.
const maxCommand = 7900

// Do runs one command (its name, then its arguments) if token is admitted, and returns the
// command's result. For clusters, list in keys the keys that the command names. The command has at
// most 7,900 words. The error is a *fence.StaleError, the error of token.Check, or an error of
// Redis. If the response was lost, the command may have run.
func Do(ctx context.Context, client redis.Scripter, token fence.Token, keys []string, command ...any) (any, error) {
	return run(ctx, client, script, token, keys, command...)
}

// run runs one of this package's scripts.
func run(ctx context.Context, client redis.Scripter, script *redis.Script, token fence.Token, keys []string, command ...any) (any, error) {
	if err := token.Check(token.Election); err != nil {
		return nil, err
	}
	if len(command) > maxCommand {
		return nil, fmt.Errorf("fenceredis: the command has %d words, and a script takes at most %d: split it", len(command), maxCommand)
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
	return nil, fmt.Errorf("fenceredis: under fence %s with %v: %v is not a result of this script", keys[0], token, answer)
}

// Set sets key to value if token is admitted. Errors are those of Do.
func Set(ctx context.Context, client redis.Scripter, token fence.Token, key string, value any) error {
	_, err := Do(ctx, client, token, []string{key}, "SET", key, value)
	return err
}

// Guard is a fence.Checker that remembers in Redis, for resources outside of Redis. Between its
// check and the act there is a gap. Make it by NewGuard: the zero Guard has no client, and admits
// nothing.
type Guard struct {
	// Confirm is as in fence.Guard. Optional. Set it before the first use.
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
