// Package apart and what is below it are the tests of packages whose modules must not
// require what these tests do: a server in process, an SDK with its exporters, drivers, another
// module of this repository. The directories have the names of the packages. It also
// has the programs chaos and bench. The module is never tagged.
package apart
