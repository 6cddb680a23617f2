package main

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/examples/internal/terminals"
)

func TestMain(m *testing.M) {
	terminals.Main("service", main)
	m.Run()
}

// docs/go-service.md, followed word by word.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	page := terminals.Open(t, "go-service.md", "service")
	get := func(path string) (int, string) {
		var answer *http.Response
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for limit := time.After(time.Minute); ; {
			var err error
			if answer, err = http.Get(page.Here("http://127.0.0.1:8082" + path)); err == nil {
				break
			}
			select {
			case <-again.C: // it campaigns before it listens
			case <-limit:
				t.Fatal(err)
			}
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	one := page.Type(0)
	one.Await("act token=")
	two := page.Type(1)
	two.Await("leaderelection: another leads")
	if code, _ := get("/election/leader"); code != http.StatusServiceUnavailable {
		t.Errorf("a standby says %d", code)
	}
	one.CtrlC()
	two.Await("act token=")
	page.Check(two.Log())
	if code, _ := get("/election/leader"); code != http.StatusOK {
		t.Errorf("the leader says %d", code)
	}
	if _, metrics := get("/metrics"); !strings.Contains(metrics, `leaderelection_is_leader{`) {
		t.Errorf("there are no metrics:\n%s", metrics)
	}
	two.CtrlC()
	if log := two.Log(); !strings.Contains(log, "wound down") || !strings.Contains(log, "leaderelection: stopped") {
		t.Errorf("it ends so:\n%s", log)
	}
	if first, second := token(t, one), token(t, two); first == 0 || second != first+1 {
		t.Errorf("the tokens are %d, then %d", first, second)
	}
}

// token is the one that all acts of a program had.
func token(t *testing.T, program *terminals.Terminal) (n uint64) {
	t.Helper()
	for _, act := range regexp.MustCompile(`act token=(\d+)`).FindAllStringSubmatch(program.Log(), -1) {
		of, err := strconv.ParseUint(act[1], 10, 64)
		if err != nil || n != 0 && of != n {
			t.Errorf("acts have the tokens %d and %s", n, act[1])
		}
		n = of
	}
	return n
}
