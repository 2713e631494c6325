// Package streamcheck is an app that knows what it should receive. A client ([Run]) and a server ([Serve]) send each other
// seeded bytes over any net.Conn, verify each byte in its order, and report what a user would notice: bytes lost, repeated
// or out of place, how long the stream stood still, how much came through and how it ended.
//
// What they do is a [Plan]: [Tick] sends little at a steady pace, [Blast] as much as goes, [Keys] has each message
// answered, [Idle] waits before it sends one. [Plan.Slow] makes a reader that lags. The client sends the plan in the
// first line; then each direction is a bare sequence of bytes and an end mark, with nothing in between that could be
// confused by what the connection does to it. [Dial], [DialSOCKS5], [DialHTTP] and [Start] open connections as apps do.
//
// It runs alike on real sockets and in testing/synctest bubbles, starts no goroutine that outlives a call, and verifies
// several gigabytes a second on one core.
package streamcheck
