package postgres

// Quorum is quorum.
var Quorum = quorum
