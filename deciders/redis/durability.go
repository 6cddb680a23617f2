package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks the key's master which parts of "What Redis
// can lose" in the package's documentation apply. Beyond Permissions it needs +info and
// +config|get. If the server refuses either, the error says so.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	w, err := within.Do(ctx, d.b.calls, func() ([]durability.Warning, error) {
		server, err := d.b.master(ctx)
		if err != nil {
			return nil, err
		}
		info, infoErr := information(ctx, server)
		config, configErr := configuration(ctx, server)
		s := settings{info, config, d.b.opts.WaitReplicas}
		return append(append(s.disk(), s.replicas()...), s.memory()...), errors.Join(infoErr, configErr)
	})
	if err != nil {
		err = d.election.Failed(ctx, "examining the server of", err)
	}
	return w, err
}

// information is what INFO says. That much also managed services tell.
func information(ctx context.Context, server redis.UniversalClient) (map[string]string, error) {
	text, err := server.Info(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("the server refuses INFO, so its replicas and whether it keeps a log (appendonly) are not known: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	return info, nil
}

// configuration is what CONFIG GET says. One question a name: servers before 7 take no more.
func configuration(ctx context.Context, server redis.UniversalClient) (map[string]string, error) {
	config := map[string]string{}
	for _, name := range []string{"appendfsync", "save", "min-replicas-to-write"} {
		answer, err := server.ConfigGet(ctx, name).Result()
		if err != nil {
			return config, fmt.Errorf("the server refuses CONFIG GET %s, as managed ones do; see in the service's own settings that appendfsync is always and min-replicas-to-write 1 or more: %w", name, err)
		}
		for name, value := range answer {
			config[name] = value
		}
	}
	return config, nil
}

// settings is what the server has told. What it has not told is missing, and not warned of.
type settings struct {
	info, config map[string]string
	wait         int // Options.WaitReplicas
}

// disk is what a restart forgets.
func (s settings) disk() []durability.Warning {
	const advice = "set appendonly yes and appendfsync always, or keep a server that has lost its data away from clients for a term"
	sync, told := s.config["appendfsync"]
	switch {
	case s.info["aof_enabled"] == "0":
		detail := "appendonly is no: a restart forgets what was written since the last snapshot, even a confirmed write, and two may lead"
		if save, told := s.config["save"]; told && save == "" {
			detail = `appendonly is no, and save is "": a restart forgets all, even a confirmed write, and two may lead`
		}
		return []durability.Warning{{Detail: detail, Advice: advice}}
	case told && sync != "always":
		return []durability.Warning{{
			Detail: fmt.Sprintf("appendfsync is %s: a crash of the machine forgets the confirmed writes of the last second or more, and two may lead", sync),
			Advice: advice,
		}}
	}
	return nil
}

// replicas is what a fail-over forgets.
func (s settings) replicas() (all []durability.Warning) {
	n, err := strconv.Atoi(s.info["connected_slaves"])
	if err != nil {
		return nil
	}
	advice := fmt.Sprintf("set wait_replicas=%d (Options.WaitReplicas) for all candidates", n)
	switch {
	case n > 0 && s.wait == 0:
		all = append(all, durability.Warning{
			Detail: fmt.Sprintf("wait_replicas is 0, and the master has %d: a fail-over to one that lags forgets a confirmed write, and two may lead", n),
			Advice: advice,
		})
	case s.wait < n:
		all = append(all, durability.Warning{
			Detail: fmt.Sprintf("wait_replicas is %d, and the master has %d: a fail-over to a replica that nobody waited for forgets a confirmed write, so that a token may be given out twice and two may lead", s.wait, n),
			Advice: advice + "; nobody leads then while one of them is away",
		})
	case s.wait > n:
		all = append(all, durability.Warning{
			Detail: fmt.Sprintf("wait_replicas is %d, and the master has %d: no write counts, and nobody can lead", s.wait, n),
			Advice: "repair the replicas; if these are all, set wait_replicas (Options.WaitReplicas) to as many",
		})
	}
	if n+s.wait > 0 && s.config["min-replicas-to-write"] == "0" {
		all = append(all, durability.Warning{
			Detail: "min-replicas-to-write is 0: a master that a partition cuts off goes on confirming writes that its successor does not have, and two may lead",
			Advice: "set min-replicas-to-write 1, and min-replicas-max-lag to a few seconds",
		})
	}
	return all
}

// memory is whether the record may be evicted.
func (s settings) memory() []durability.Warning {
	policy := s.info["maxmemory_policy"]
	if limit := s.info["maxmemory"]; limit == "" || limit == "0" || !strings.HasPrefix(policy, "allkeys-") {
		return nil
	}
	return []durability.Warning{{
		Detail: fmt.Sprintf("maxmemory-policy is %s: a server that is full may delete the record, and two may lead", policy),
		Advice: "set maxmemory-policy noeviction, or one of volatile-*: the record has no expiry",
	}}
}
