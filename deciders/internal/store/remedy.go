package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
)

// Remedy is what to do about an error that no retry by itself can cure: one that errors.Is says
// is Err, or whose text has Part, whichever is given.
type Remedy struct {
	Err    error
	Part   string
	Advice string
	// Denied says that credentials or a permission are refused: see [Denied].
	Denied bool
}

// Remedies are tried in their order.
type Remedies []Remedy

// Judge is the verdict of the first Remedy that fits; that of none may pass.
func (rs Remedies) Judge(err error) Verdict {
	text := err.Error()
	for _, r := range rs {
		if r.Err != nil && errors.Is(err, r.Err) || r.Part != "" && strings.Contains(text, r.Part) {
			return Verdict{Advice: r.Advice, Permanent: !r.Denied, Denied: r.Denied}
		}
	}
	return Verdict{}
}

// BadCertificate reports whether err is that a server's certificate is not trusted.
func BadCertificate(err error) bool {
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &hostname) || errors.As(err, &authority) || errors.As(err, &certificate)
}
