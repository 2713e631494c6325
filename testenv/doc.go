// Package testenv holds worlds with faults for tests and for `linkproxy demo`. Three worlds understand the same verbs:
//
//   - [Net] and [Route] keep everything in memory. They start no goroutine: each byte carries the instant at which it
//     may be read, so that inside a testing/synctest bubble a byte written at t over a delay d is readable at exactly
//     t+d, and two runs agree.
//   - [World] adds hosts with interfaces and addresses on networks, names, clocks and sleep; its links are Routes. It
//     writes a timeline of what happened.
//   - [Path] forwards real TCP connections on the loopback interface, for tests between processes.
//
// The verbs: SetDelay, SetRate, BlackHole, LoseLarge, Heal, CutAfter, Reset, Fin, Refuse, Hang, Live, Bytes. "Up" is from
// the end that dialled to the end that accepted, "down" is the way back; on a link of a World, "up" is from the network
// named first to the other. A connection behaves as TCP does: bytes come in order, writes block when the buffer is full,
// what a black hole swallowed is delivered after Heal.
package testenv
