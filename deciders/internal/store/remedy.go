package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
)

// Remedy is advice about an error that no retry can help. It fits if errors.Is reports Err, or if
// the text has Part.
type Remedy struct {
	Err    error
	Part   string
	Advice string
	// Denied says that credentials or a permission are refused: see [Denied].
	Denied bool
}

// Remedies are tried in their order.
type Remedies []Remedy

// Judge is the verdict of the first Remedy that fits. If none fits, the error is temporary.
func (rs Remedies) Judge(err error) Verdict {
	text := err.Error()
	for _, r := range rs {
		if r.Err != nil && errors.Is(err, r.Err) || r.Part != "" && strings.Contains(text, r.Part) {
			return Verdict{Advice: r.Advice, Permanent: !r.Denied, Denied: r.Denied}
		}
	}
	return Verdict{}
}

// BadCertificate reports whether err says that a server's certificate is not trusted.
func BadCertificate(err error) bool {
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &hostname) || errors.As(err, &authority) || errors.As(err, &certificate)
}
