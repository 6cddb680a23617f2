package rethinkdb_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"
)

// handshake is the server's side of the login of protocol 1.0, SCRAM-SHA-256, and says
// whether the client is in.
func (s *imitation) handshake(c io.Writer, r *bufio.Reader) bool {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return false
	}
	if magic[0] == 22 { // a TLS ClientHello
		_, _ = io.WriteString(c, "ERROR: Received an unsupported protocol version. This port is for RethinkDB queries.\n")
		return false
	}
	if v := binary.LittleEndian.Uint32(magic[:]); v != uint32(p.VersionDummy_V1_0) {
		s.t.Errorf("imitation: the protocol %x", v)
		return false
	}
	var first struct{ Authentication string }
	if !receive(r, &first) {
		return false
	}
	send(c, map[string]any{"success": true, "min_protocol_version": 0, "max_protocol_version": 0, "server_version": "2.4.4"})
	bare := strings.TrimPrefix(first.Authentication, "n,,")
	nonce := attribute(bare, "r") + "server"
	const salt, rounds = "salt", 16
	challenge := fmt.Sprintf("r=%s,s=%s,i=%d", nonce, base64.StdEncoding.EncodeToString([]byte(salt)), rounds)
	send(c, map[string]any{"success": true, "authentication": challenge})

	var last struct{ Authentication string }
	if !receive(r, &last) {
		return false
	}
	message := []byte(bare + "," + challenge + ",c=biws,r=" + nonce)
	salted, err := pbkdf2.Key(sha256.New, s.password, []byte(salt), rounds, sha256.Size)
	if err != nil {
		s.t.Errorf("imitation: %v", err)
		return false
	}
	key := mac(salted, []byte("Client Key"))
	stored := sha256.Sum256(key)
	proof := mac(stored[:], message)
	subtle.XORBytes(proof, proof, key)
	if attribute(last.Authentication, "p") != base64.StdEncoding.EncodeToString(proof) || attribute(bare, "n") != "admin" {
		send(c, map[string]any{"success": false, "error": "Wrong password", "error_code": 12})
		return false
	}
	signature := mac(mac(salted, []byte("Server Key")), message)
	send(c, map[string]any{"success": true, "authentication": "v=" + base64.StdEncoding.EncodeToString(signature)})
	return true
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

func receive(r *bufio.Reader, into any) bool {
	b, err := r.ReadBytes(0)
	return err == nil && json.Unmarshal(b[:len(b)-1], into) == nil
}

func send(c io.Writer, message map[string]any) {
	b, _ := json.Marshal(message)
	_, _ = c.Write(append(b, 0))
}
