//go:build unix && !linux

package proc

func becomeRoot() {}

func becomeHeadless() {}

func becomeCandidate() {}
