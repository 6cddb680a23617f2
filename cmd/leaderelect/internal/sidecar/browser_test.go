//go:build unix

package sidecar_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// browser is a headless Chromium, spoken to by its DevTools protocol over a pipe.
type browser struct {
	width   int // of the window
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	id      int
	session string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		stores.Missing(t, "the page cannot be looked at without chromium: apt-get install chromium")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		in.Close()
		out.Close()
		_ = os.RemoveAll(dir)
	})
	_ = out.SetReadDeadline(time.Now().Add(2 * time.Minute))
	b := &browser{t: t, to: in, from: bufio.NewReader(out)}
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	return b
}

// call makes a call and waits for its answer; what else is said is passed over.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	data, err := json.Marshal(map[string]any{"id": b.id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		data, err = json.Marshal(map[string]any{"id": b.id, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(data, 0)); err != nil {
		b.t.Fatal(err)
	}
	for {
		text, err := b.from.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &answer); err != nil {
			b.t.Fatal(err)
		}
		if answer.ID != b.id {
			continue
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return
	}
}

func (b *browser) open(url string) { b.call("Page.navigate", map[string]any{"url": url}, nil) }

// look sets the size of the window, and light or dark.
func (b *browser) look(width, height int, scheme string) {
	b.width = width
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// eval is the value of a JavaScript expression, as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct{ Result struct{ Value any } }
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	return fmt.Sprint(r.Result.Value)
}

// until waits until the expression has the value.
func (b *browser) until(expression, want string) {
	b.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		got := b.eval(expression)
		if got == want {
			return
		}
		select {
		case <-again.C:
		case <-limit.C:
			b.t.Fatalf("%s is %q, want %q", expression, got, want)
		}
	}
}

// picture writes a screenshot to the directory in PICTURES, to be looked at. docs/pictures/sidecar.png is
// the one that is called light.
func (b *browser) picture(name string) {
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	var r struct{ Result struct{ Value float64 } }
	b.call("Runtime.evaluate", map[string]any{"expression": "document.body.getBoundingClientRect().bottom + 16", "returnByValue": true}, &r)
	clip := map[string]any{"x": 0, "y": 0, "width": b.width, "height": r.Result.Value, "scale": 1}
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "clip": clip}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+name+".png", data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
