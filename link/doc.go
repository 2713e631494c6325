// Package link is the resumable session between two linkproxy processes: streams of bytes that arrive once and in order
// whatever happens to the connections beneath them. A Link is one such session; a carrier is any reliable byte stream that
// serves it for a while, several at a time. The client side decides (NewLink, Attach, Switch), the host side obeys (Host).
//
// The rules live in link/core, which is pure; this package owns the connections, the goroutines and the clock. A link is a
// monitor: one mutex guards its core, every critical section is a bounded step of the core, and nothing ever waits inside
// (docs/decisions/0001-link-monitor.md). Each carrier has one reader and one writer goroutine, each link one for its timers.
package link
