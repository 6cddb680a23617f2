package sqlite

// Local is local.
var Local = local
