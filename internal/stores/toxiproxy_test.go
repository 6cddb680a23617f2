package stores_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestToxiproxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	upstream := server.Listener.Addr().String()
	proxies := stores.Toxiproxy(t, upstream, upstream)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(p *stores.Proxy, patience time.Duration) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr, nil) // POST: not retried by the client
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		answer, err := client.Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		return time.Since(begun), err
	}
	const long = 10 * time.Second
	p, other := proxies[0], proxies[1]
	if _, err := ask(p, long); err != nil {
		t.Fatal(err)
	}
	for what, act := range map[string]func(){"cut": p.Cut, "hanging": p.Hang, "mute": p.Mute, "severed": func() { p.Sever(10) }} {
		act()
		if took, err := ask(p, 50*time.Millisecond); err == nil {
			t.Errorf("%s: answered after %v", what, took)
		}
		if _, err := ask(other, long); err != nil {
			t.Errorf("%s: the other proxy does not answer: %v", what, err)
		}
		p.Heal()
		client.CloseIdleConnections()
		if _, err := ask(p, long); err != nil {
			t.Errorf("%s and healed: %v", what, err)
		}
	}
	p.Slow(80 * time.Millisecond)
	if took, err := ask(p, long); err != nil || took < 80*time.Millisecond {
		t.Errorf("slowed by 80 ms: %v, %v", took, err)
	}
	p.Heal()
	if _, err := ask(p, long); err != nil {
		t.Error(err)
	}
}
