package rethinkdb_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection/internal/feedtest"
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
	login := feedtest.SCRAM{User: "admin", Password: s.password, Rounds: 16}
	send(c, map[string]any{"success": true, "authentication": login.First(first.Authentication)})

	var last struct{ Authentication string }
	if !receive(r, &last) {
		return false
	}
	proof, err := login.Last(last.Authentication)
	if err != nil {
		send(c, map[string]any{"success": false, "error": "Wrong password", "error_code": 12})
		return false
	}
	send(c, map[string]any{"success": true, "authentication": proof})
	return true
}

func receive(r *bufio.Reader, into any) bool {
	b, err := r.ReadBytes(0)
	return err == nil && json.Unmarshal(b[:len(b)-1], into) == nil
}

func send(c io.Writer, message map[string]any) {
	b, _ := json.Marshal(message)
	_, _ = c.Write(append(b, 0))
}
