// Package route decides how a peer is reached: which routes are tried, in
// which order and when, which one wins, when a failed race is tried again, how
// many dials a peer may cost, and what the user is told when nothing worked.
//
// Everything here is a decision and nothing an act: facts and a time come in,
// actions, their reasons and the next wake-up time go out. The package reads no
// clock, opens no socket, starts no goroutine, holds no lock and writes no log.
// Its types are not safe for concurrent use: each belongs to one peer's loop.
package route
