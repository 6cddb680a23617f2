package loop

// Go runs f in a goroutine of its own, and then done, also if f ends its goroutine, as t.FailNow does.
func Go(f, done func()) {
	go func() {
		defer done()
		f()
	}()
}
