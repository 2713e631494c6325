// Package host is the far side of linkproxy, the machine to reach: it serves links on any net.Listener, keeps one
// session for each identity and link however often its carriers change, and dials the targets that its allow rules
// cover, judged on the resolved address, which is the one dialled.
package host
