package cli

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

// The log tells of a store that cannot be reached at first once, and once more when it is open.
func TestOpensPatiently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		a := &app{errOut: &log}
		tries := 0
		opened, err := patiently(t.Context(), a, func() (string, error) {
			if tries++; tries < 4 {
				return "", errors.New("nobody is there")
			}
			return "store", nil
		})
		if opened != "store" || err != nil || tries != 4 {
			t.Fatalf("%q, %v after %d tries", opened, err, tries)
		}
		a.log().Flush(time.Minute)
		for _, says := range []string{"the store cannot be opened", `msg="the store is open" after=7s failed=3`} {
			if n := strings.Count(log.String(), says); n != 1 {
				t.Errorf("it says %q %d times:\n%s", says, n, log.String())
			}
		}
		_, err = patiently(t.Context(), a, func() (string, error) { return "", leaderelection.ErrPermanent })
		if !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("what no retry can help: %v", err)
		}
	})
}
