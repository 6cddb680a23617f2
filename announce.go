package leaderelection

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// announceEvery is how soon after the last extension another may carry an announcement:
// some stores take one write a second for each object.
const announceEvery = time.Second

// maxAnnouncement is how many bytes of a record HostPort and ConnectionParams may take,
// counted for the worst case. Stores keep a quarter of a MiB.
const maxAnnouncement = 192 << 10

// Announce changes what this candidate tells its clients, HostPort and ConnectionParams
// of its Config, without an end to its leadership. A leader makes one extension for it at
// once, or a second after its last if that is later; observers then see it. It stays in force
// for later leadership. If Announce is called again before that, only the newest counts.
//
// It refuses what Config refuses, and then changes nothing. It does not wait for the
// store: nil means that the campaign will write it, for as long as it leads.
func (c *Campaign) Announce(hostPort []string, params []byte) error {
	if faults := checkAnnouncement(hostPort, params); faults != nil {
		return fmt.Errorf("leaderelection: Announce: %w", errors.Join(faults...))
	}
	c.f.post(announced{slices.Clone(hostPort), slices.Clone(params)})
	return nil
}

// announces reports whether the record e tells clients what this candidate wants them to
// know.
func (c *Campaign) announces(e *RaceEntry) bool {
	return slices.Equal(e.HostPort, c.cfg.HostPort) && bytes.Equal(e.ConnectionParams, c.cfg.ConnectionParams)
}

// checkAnnouncement returns what keeps a record from telling clients this.
func checkAnnouncement(hostPort []string, params []byte) (faults []error) {
	size := base64.StdEncoding.EncodedLen(len(params))
	for i, s := range hostPort {
		if !utf8.ValidString(s) {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not UTF-8 text, which is all that a record can keep", i, s))
		}
		size += 6 * len(s) // if each is a control character
	}
	if size > maxAnnouncement {
		faults = append(faults, fmt.Errorf("HostPort and ConnectionParams may take %d bytes of the record, and %d are allowed: keep them short", size, maxAnnouncement))
	}
	return faults
}
