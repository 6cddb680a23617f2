package lehttp

import (
	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/shard"
)

// Known returns how many shards' Proxies there are.
func (p *ShardProxy) Known() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.proxies)
}

// NewRouter returns a Router that learns of records only by News.
func NewRouter(config leaderelection.Config) *Router {
	return &Router{table: route.NewTable(config.Clock, config.MaxClockSkew, config.ClockPolicy)}
}

// News tells the Router of a record.
func (r *Router) News(e leaderelection.RaceEntry) { r.table.News(e) }

// NewShardRouter returns a ShardRouter that learns of assignments only by News.
func NewShardRouter(clock clocks.Clock) *ShardRouter {
	return &ShardRouter{shards: route.NewShards(clock, recordOf)}
}

// News tells the ShardRouter of an assignment.
func (r *ShardRouter) News(a *shard.Assignment) { r.shards.News(a) }
