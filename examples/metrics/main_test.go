package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the show tells its visitor to do, done until both candidates have led.
func TestShow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, print := io.Pipe()
	returned := make(chan error, 1)
	go func() {
		err := show(ctx, print, "127.0.0.1:0", 100*time.Millisecond)
		_ = print.Close()
		returned <- err
	}()
	said := bufio.NewScanner(out)
	said.Scan()
	url := regexp.MustCompile(`http://[^ ]+/metrics`).FindString(said.Text())
	for led := map[string]bool{}; len(led) < 2 && said.Scan(); {
		name, _, _ := strings.Cut(said.Text(), " leads with token ")
		led[name] = true
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()

	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	for _, want := range []string{
		`(?m)^leaderelection_is_leader\{leaderelection_candidate="(ada|bob)",leaderelection_election="example"\} [01]$`,
		`(?m)^leaderelection_fencing_token\{.*\} [12](\.\d+)?e\+09$`, // the first is the seconds since 1970
		`(?m)^leaderelection_transitions_total\{.*"ada".*"elected"\} \d+$`,
		`(?m)^leaderelection_transitions_total\{.*"bob".*"elected"\} \d+$`,
		`(?m)^leaderelection_leaderless_time_seconds_total\{.*\} .+$`,
		`(?m)^leaderelection_store_operations_total\{.*"acquire".*"ok".*\} \d+$`,
	} {
		text := ""
		for !regexp.MustCompile(want).MatchString(text) { // Trace is told a little later than OnElected is called
			if ctx.Err() != nil {
				t.Fatalf("it does not say %s:\n%s", want, text)
			}
			text = get(t, client, url)
		}
	}
	cancel()
	if err := <-returned; err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", url, res.Status, err)
	}
	return string(text)
}

func TestShowWithoutAnAddress(t *testing.T) {
	if err := show(t.Context(), io.Discard, "256.0.0.1:0", time.Second); err == nil {
		t.Error("it serves where it cannot listen")
	}
}
