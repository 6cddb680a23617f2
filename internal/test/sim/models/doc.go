// Package models holds a model of package shard's protocol, in Promela, and the test that has spin check it and every mutant
// of it: see README.md. Nothing imports it.
package models
