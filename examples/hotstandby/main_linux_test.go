package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/examples/internal/terminals"
)

func TestMain(m *testing.M) {
	terminals.Main("hotstandby", delayedMain)
	m.Run()
}

// docs/request-router.md, followed word by word.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	page := terminals.Open(t, "request-router.md", "hotstandby")
	one := page.Type(0)
	one.Await("leaderelection: leading")
	two := page.Type(1)
	two.Await("leaderelection: another leads")
	var printed strings.Builder
	curls := 0
	for line := range strings.Lines(page.Here(page.Prints)) {
		urls, is := strings.CutPrefix(line, "$ curl ")
		if !is {
			continue
		}
		if curls++; curls == 2 {
			one.CtrlC()
		}
		printed.WriteString(line)
		for _, url := range strings.Fields(urls) {
			answer, err := http.Get("http://" + url)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Error(err)
			}
			_ = answer.Body.Close()
			printed.Write(text)
		}
	}
	page.Check(printed.String())
	http.DefaultClient.CloseIdleConnections()
	two.CtrlC()
}
