package feedtest

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// SCRAM is the server's side of one login by SCRAM-SHA-256 (RFC 7677), for imitations of
// servers.
type SCRAM struct {
	User, Password string
	Rounds         int // of PBKDF2
	bare           string
	challenge      string
}

// ErrLogin is what a client gets whose user or password is wrong.
var ErrLogin = errors.New("feedtest: user or password are wrong")

// First takes the client's first message, and returns the challenge.
func (s *SCRAM) First(message string) string {
	s.bare = strings.TrimPrefix(message, "n,,")
	s.challenge = fmt.Sprintf("r=%sserver,s=%s,i=%d", attribute(s.bare, "r"), base64.StdEncoding.EncodeToString([]byte("salt")), s.Rounds)
	return s.challenge
}

// Last takes the client's last message, and returns the proof that the server knows the
// password, too; or ErrLogin.
func (s *SCRAM) Last(message string) (string, error) {
	salted, err := pbkdf2.Key(sha256.New, s.Password, []byte("salt"), s.Rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	signed := []byte(s.bare + "," + s.challenge + ",c=biws,r=" + attribute(s.challenge, "r"))
	key := mac(salted, []byte("Client Key"))
	stored := sha256.Sum256(key)
	proof := mac(stored[:], signed)
	subtle.XORBytes(proof, proof, key)
	if attribute(s.bare, "n") != s.User || attribute(message, "p") != base64.StdEncoding.EncodeToString(proof) {
		return "", ErrLogin
	}
	return "v=" + base64.StdEncoding.EncodeToString(mac(mac(salted, []byte("Server Key")), signed)), nil
}

func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)
}

// attribute is one of the attributes of a SCRAM message.
func attribute(message, name string) string {
	for part := range strings.SplitSeq(message, ",") {
		if v, ok := strings.CutPrefix(part, name+"="); ok {
			return v
		}
	}
	return ""
}
