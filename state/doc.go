// Package state keeps on disk what was learned about peers' routes: docs/state.md.
//
// Losing it costs speed, never correctness. So nothing here fails: what cannot be read is set aside or left alone, what cannot be
// written stays in memory, and the log says so once.
package state
