package record_test

import (
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// What a decider keeps, and what it makes of what it finds.
func Example() {
	entry := &leaderelection.RaceEntry{
		LeaderID:       "web-1",
		HostPort:       []string{"10.0.0.1:443"},
		TermExpiry:     time.Date(2026, 11, 21, 11, 24, 5, 0, time.UTC),
		TermLength:     15 * time.Second,
		ElectionNumber: 7,
		Extension:      12,
		Incarnation:    "6b1f0c",
	}
	data, err := record.Marshal(entry)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(data))

	found, err := record.Unmarshal("bucket elections, object web", data)
	if err != nil {
		fmt.Println(err)
		return
	}
	// The decider now sets found.Token to the version of what it read.
	fmt.Println(found.LeaderID, "leads until", found.TermExpiry, "with token", found.ElectionNumber)
	// Output:
	// {"leaderelection":1,"leader_id":"web-1","host_port":["10.0.0.1:443"],"term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"6b1f0c"}
	// web-1 leads until 2026-11-21 11:24:05 +0000 UTC with token 7
}

// A newer version of the library has written two fields that this one does not know. One of
// them an older candidate may go on without: it hands it on. The other it may not miss.
func Example_upgrade() {
	const before = `{"leaderelection":1,"leader_id":"","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s",` +
		`"election_number":7,"extension":13,"incarnation":"6b1f0c"`

	e, err := record.Unmarshal("table elections, row web", []byte(before+`,"zone":"eu"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Extension++
	data, err := record.Marshal(e)
	fmt.Println(string(data), err)

	_, err = record.Unmarshal("table elections, row web", []byte(before+`,"quorum":3,"must_understand":["quorum"]}`))
	fmt.Println(err)
	// Output:
	// {"leaderelection":1,"leader_id":"","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":14,"incarnation":"6b1f0c","zone":"eu"} <nil>
	// leaderelection: the record at table elections, row web cannot be used: field "quorum" must be understood, and is unknown; a newer version of the library has written it: upgrade this program: leaderelection: no retry can help
}
