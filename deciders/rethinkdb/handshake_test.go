package rethinkdb_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"

	"github.com/xdg-go/scram"
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
	login, err := conversation("admin", s.password)
	if err != nil {
		s.t.Errorf("imitation: %v", err)
		return false
	}
	wrong := map[string]any{"success": false, "error": "Wrong password", "error_code": 12}
	challenge, err := login.Step(first.Authentication)
	if err != nil {
		send(c, wrong)
		return false
	}
	send(c, map[string]any{"success": true, "authentication": challenge})

	var last struct{ Authentication string }
	if !receive(r, &last) {
		return false
	}
	proof, err := login.Step(last.Authentication)
	if err != nil {
		send(c, wrong)
		return false
	}
	send(c, map[string]any{"success": true, "authentication": proof})
	return true
}

// conversation is the server's side of one login.
func conversation(user, password string) (*scram.ServerConversation, error) {
	client, err := scram.SHA256.NewClient(user, password, "")
	if err != nil {
		return nil, err
	}
	server, err := scram.SHA256.NewServer(func(name string) (scram.StoredCredentials, error) {
		if name != user {
			return scram.StoredCredentials{}, errors.New("there is no such user")
		}
		return client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "salt", Iters: 4096})
	})
	if err != nil {
		return nil, err
	}
	return server.NewConversation(), nil
}

func receive(r *bufio.Reader, into any) bool {
	b, err := r.ReadBytes(0)
	return err == nil && json.Unmarshal(b[:len(b)-1], into) == nil
}

func send(c io.Writer, message map[string]any) {
	b, _ := json.Marshal(message)
	_, _ = c.Write(append(b, 0))
}
