package lehttp

// Known returns how many shards' Proxies there are.
func (p *ShardProxy) Known() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.proxies)
}
