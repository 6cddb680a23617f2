package sidecar

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/shard"
)

// guarded lets in who may ask for a hand-over.
func (s *server) guarded(do func(context.Context, *http.Request) error) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := s.refusal(r); why != "" {
			answer(w, http.StatusForbidden, fault(why))
			return
		}
		if done, ok := s.place(r); ok {
			defer done()
		}
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			_ = r.ParseMultipartForm(maxBody) // what is no form has no values
			_ = c.SetReadDeadline(time.Time{})
		}
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		defer cancel()
		switch err := do(ctx, r); {
		case err == nil:
			answer(w, http.StatusAccepted, s.now())
		case errors.Is(err, errNoID):
			answer(w, http.StatusBadRequest, fault(err.Error()))
		case errors.Is(err, leaderelection.ErrNoLeader), errors.Is(err, leaderelection.ErrRefused), errors.Is(err, leaderelection.ErrLostRace), errors.Is(err, errUnknown), errors.Is(err, errNoMember), errors.Is(err, shard.ErrNoGroup), errors.Is(err, shard.ErrNoShard):
			answer(w, http.StatusConflict, fault(s.fit(err)))
		default:
			answer(w, http.StatusBadGateway, fault(s.fit(err)))
		}
	})
	// Else any page that a browser of this machine shows could ask.
	return http.NewCrossOriginProtection().Handler(h)
}

// fit is an error as strangers may read it.
func (s *server) fit(err error) string {
	if s.Fit == nil {
		return err.Error()
	}
	return s.Fit(err.Error())
}

// refusal says why r may not ask for a hand-over; empty: it may. With a secret, that
// alone counts: what comes from this machine may have come through a proxy here.
// Without one, it must come from this machine, and by one of its own names: another
// was made to point here.
func (s *server) refusal(r *http.Request) string {
	if s.ReadOnly {
		return "this sidecar is read-only"
	}
	if s.Secret != nil {
		secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if want, err := s.Secret(); err != nil {
			return "the secret of --secret-file cannot be read"
		} else if !ok || subtle.ConstantTimeCompare([]byte(secret), []byte(want)) != 1 {
			return "only with the secret of --secret-file, as Authorization: Bearer"
		}
		return ""
	}
	const local = "only from this machine, or, where the sidecar is given a --secret-file, with its secret as Authorization: Bearer"
	if !asker(r).Addr().IsLoopback() || !loopback(r.Host) {
		return local
	}
	return ""
}

// asker is who asks, as origin says it. What a proxy of this machine has passed on, from wherever, is nobody's.
func asker(r *http.Request) netip.Prefix {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || strings.HasSuffix(name, "-Ip") {
			return netip.Prefix{}
		}
	}
	return origin(r.RemoteAddr)
}

// hosts answers only what is asked by a name that this sidecar may go by. Else a page
// of anybody's could read it in the browser of somebody who can reach it, by a name of
// that one's own that it makes point here (DNS rebinding).
func (s *server) hosts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostOf(r.Host); !private(host) && !slices.Contains(s.Hosts, host) && !slices.Contains(s.Hosts, "*") {
			answer(w, http.StatusMisdirectedRequest, fault("this sidecar does not go by the name in the request's Host: allow it by --allow-host"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// private reports whether nobody else can make a name point here: it is an address, a
// name without a dot, or one that only this machine or cluster gives.
func private(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	for _, suffix := range []string{".localhost", ".svc", ".svc.cluster.local"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

func loopback(host string) bool {
	host = hostOf(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// hostOf is the name in a Host header.
func hostOf(header string) string {
	if h, _, err := net.SplitHostPort(header); err == nil {
		header = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(header, "[]"), "."))
}
