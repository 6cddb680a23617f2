//go:build unix && !linux

package proc

import (
	"os"
	"time"
)

// rouser does nothing here: a process that is stopped stays so.
type rouser struct{}

func newRouser() (*rouser, error) { return &rouser{}, nil }

func (*rouser) set(Deadline, time.Duration) {}

// lifeline: nothing wakes a stopped process here.
func lifeline() (life, end *os.File, err error) { return nil, nil, nil }

func letGo(int) {}
