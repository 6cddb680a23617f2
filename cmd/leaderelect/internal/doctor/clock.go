package doctor

import (
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

const (
	setClock  = "set this machine's clock by NTP; --skew must cover how far any candidate's clock is from true time"
	askClient = "see how far this machine's is off by chronyc tracking, or timedatectl timesync-status"
)

// unimportant tells of a check that has nothing to compare.
func (s *session) unimportant(check string) bool {
	switch s.Clocks {
	case leaderelection.Unsynchronized:
		s.tell(check, OK, "of no importance: --clocks unsynchronized compares none", "")
	case leaderelection.SharedClock:
		s.tell(check, OK, "of no importance: with --clocks shared all candidates have the same", "")
	default:
		return false
	}
	return true
}

// bound looks how far this machine's clock may be off, as the kernel knows from the
// NTP client.
func (s *session) bound() {
	const check = "the clock, by the kernel's account"
	if s.unimportant(check) {
		return
	}
	switch off, err := s.Bound(); {
	case err != nil:
		s.tell(check, Skip, err.Error(), askClient)
	case off == clocks.Unbounded:
		s.tell(check, Warn, "nothing keeps it right, as far as the kernel knows",
			"run an NTP client; chrony tells the kernel where its configuration says rtcsync. "+askClient)
	case off > s.Skew:
		s.tell(check, Fail, fmt.Sprintf("it may be %s off, and --skew is %v", Took(off), s.Skew), setClock)
	case off > s.Skew/2:
		s.tell(check, Warn, fmt.Sprintf("it may be %s off, and --skew is %v", Took(off), s.Skew), setClock)
	default:
		s.tell(check, OK, fmt.Sprintf("at most %s off", Took(off)), "")
	}
}

// clock compares this machine's clock with the store's.
func (s *session) clock() {
	const check = "the clock, against the store's"
	if s.unimportant(check) {
		return
	}
	if err := s.put(s.last.Token); err != nil {
		s.tell(check, Skip, "a write failed: "+err.Error(), "run this again")
		return
	}
	end := time.Now()
	begin := end.Add(-s.writes[len(s.writes)-1]) // not the pause before it
	at := s.last.Token.CommitTS()
	if at.IsZero() {
		if e, err := s.get(); err == nil && e.Token != nil {
			at = e.Token.CommitTS()
		}
	}
	if at.IsZero() {
		s.tell(check, Skip, "the store does not say its time", askClient)
		return
	}
	// The write happened between begin and end; a time in whole seconds is early by
	// up to one, and by two from a server that makes its Date header once a second.
	early, late := at.Sub(end.Round(0)), at.Sub(begin.Round(0))
	if at.Nanosecond() == 0 {
		late += 2 * time.Second
	}
	var off time.Duration // the least that explains it
	switch {
	case early > 0:
		off = early
	case late < 0:
		off = late
	}
	detail := fmt.Sprintf("the store's agrees with this machine's: it is %s behind at most, %s ahead at most", Took(max(-early, 0)), Took(max(late, 0)))
	switch {
	case early > 0:
		detail = fmt.Sprintf("the store's is %s to %s ahead of this machine's", Took(early), Took(late))
	case late < 0:
		detail = fmt.Sprintf("the store's is %s to %s behind this machine's", Took(-late), Took(-early))
	}
	switch bound, err := s.Bound(); {
	case off.Abs() > s.Skew && err == nil && bound > 0 && bound <= s.Skew:
		s.tell(check, Fail, fmt.Sprintf("%s, which is at most %s off by the kernel's account: the store's clock is wrong", detail, Took(bound)),
			"set the clock of the store's server by NTP; until then run the candidates with --clocks kernel, and they lead Unsynchronized")
	case off.Abs() > s.Skew:
		s.tell(check, Fail, detail, setClock+". If it is right, the store's is wrong: set that")
	case off.Abs() > s.Skew/2:
		s.tell(check, Warn, detail, setClock)
	default:
		s.tell(check, OK, detail, "")
	}
}
