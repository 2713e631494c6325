// Package route decides how a peer is reached: which routes may be tried, in
// which order and when, which one wins, what is remembered of it and on which
// network, when a link moves to another route, when a failed race is tried
// again, how many dials a peer may cost, and what the user is told.
//
// A race goes like this: Vetting.Vet says what may be tried at all, Rank puts
// that in order by Facts, of which Memory is one, Race says what to start when,
// and Memory.Record learns from how it ended. ExplainRace and ExplainEnd put
// both into words.
//
// Everything here is a decision and nothing an act: facts and a time come in,
// actions, their reasons and the next wake-up time go out. The package reads no
// clock, opens no socket, starts no goroutine, holds no lock and writes no log.
// Its types are not safe for concurrent use: each belongs to one peer's loop.
package route
