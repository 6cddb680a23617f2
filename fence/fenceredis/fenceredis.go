/*
Package fenceredis fences writes to Redis: the check and the write are one script,
which Redis runs as one step.

	err := fenceredis.Set(ctx, client, token, "{orders}:state", value)

The greatest number seen of an election is kept under a key of its own,
{Election}:fence, which must never expire: a fence that is forgotten lets deposed
leaders in. On a cluster a script's keys must be in one slot, so give the keys
that are written the same hash tag. Writes of one's own are commands for [Do], or
a larger script that begins with [Check].

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

// Check is Lua that begins a script of one's own: it goes on where the token in
// ARGV[1] (its number, in decimal) is admitted by the fence in KEYS[1], which it
// raises, and else ends the script with {0, greatest}. Numbers are compared as
// text, since Lua's are exact to 2^53 only.
const Check = `
local seen = redis.call('GET', KEYS[1]) or '0'
if #seen > #ARGV[1] or (#seen == #ARGV[1] and seen > ARGV[1]) then return {0, seen} end
if seen ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
`

// script checks, and runs one command.
var script = redis.NewScript(Check + `
if #ARGV == 1 then return {1, false} end
return {1, redis.call(unpack(ARGV, 2))}
`)

// Key is where the fence of an election is kept. The braces are a cluster's hash
// tag: keys with the same one are in the same slot.
func Key(election string) string { return "{" + election + "}:fence" }

// Do runs one command (its name, then its arguments) if token is admitted, and
// returns what it answers. The keys that it names are to be listed in keys, for
// clusters. It returns a *fence.StaleError, fence.ErrNoToken, or what Redis says;
// where the answer was lost, the command may have run.
func Do(ctx context.Context, client redis.Scripter, token fence.Token, keys []string, command ...any) (any, error) {
	if err := token.Check(token.Election); err != nil {
		return nil, err
	}
	keys = append([]string{Key(token.Election)}, keys...)
	args := append([]any{strconv.FormatUint(uint64(token.Number), 10)}, command...)
	answer, err := script.Run(ctx, client, keys, args...).Slice()
	if err != nil {
		return nil, fmt.Errorf("fenceredis: under fence %s with %v: %w", keys[0], token, err)
	}
	if len(answer) == 0 {
		return nil, errors.New("fenceredis: the script answered nothing")
	}
	if admitted, _ := answer[0].(int64); admitted == 1 {
		if len(answer) < 2 {
			return nil, nil // Lua drops a nil at the end
		}
		return answer[1], nil
	}
	var greatest uint64
	if len(answer) > 1 {
		greatest, _ = strconv.ParseUint(fmt.Sprint(answer[1]), 10, 64)
	}
	return nil, &fence.StaleError{Token: token, Greatest: leaderelection.ElectionNumber(greatest)}
}

// Set sets key to value if token is admitted; errors are Do's.
func Set(ctx context.Context, client redis.Scripter, token fence.Token, key string, value any) error {
	_, err := Do(ctx, client, token, []string{key}, "SET", key, value)
	return err
}

// Guard is a fence.Checker that remembers in Redis: for what is not in Redis
// itself. Between its check and the act there is a gap.
type Guard struct {
	Client   redis.Scripter
	Election string
}

// Check implements fence.Checker.
func (g *Guard) Check(ctx context.Context, t fence.Token) error {
	if err := t.Check(g.Election); err != nil {
		return err
	}
	_, err := Do(ctx, g.Client, t, nil)
	return err
}
