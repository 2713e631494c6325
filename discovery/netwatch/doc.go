// Package netwatch knows the network this machine is on, and tells when it changes and when the machine woke from sleep.
//
// A [Watcher] has one loop. It looks when the system says that something changed, or by the clock where the system says
// nothing; it judges what it sees; and it tells its owner what became different in terms that matter:
//
//	w := netwatch.New(netwatch.Config{Secret: install})
//	go w.Run(ctx)
//	for e := range w.Events() { … e.Delta.Path(), e.Woke, e.Snapshot … }
//
// # What counts
//
// An [Interface] is usable when it is up and running and has an address that reaches beyond its own cable: neither loopback nor
// link-local. Plumbing does not count (a container's veth, bridges of containers and virtual machines, dummies), however
// many addresses it has, unless a default route leads through it: then it is this machine's way out, as eth0 is in a container.
// A bridge, bond or VLAN on top of hardware is what that hardware is.
//
// What an interface is, the system's type says first, then its name, and over both what the user configured ([Config].Override).
// It is a tailnet's when it is a tunnel and has an address of 100.64.0.0/10 or fd7a:115c:a1e0::/48: a provider that gives such an
// address to a modem or to a router's port (carrier-grade NAT) makes no tailnet.
//
// Two things are not read, since they would need more than the system's own door: metered on Linux (NetworkManager's
// guess is only on D-Bus) and on Windows (behind COM). There a network is metered when it is cellular or configured so.
//
// # Where this machine is
//
// A [Network] is kind, prefix and router: the /24 of the own IPv4 address, or the /64 of the default route's interface where there is
// only IPv6, and a keyed hash of the hardware address of the gateway. The hash keeps apart the many homes that are
// 192.168.1.0/24; the hardware address itself never leaves the package. The system learns it from the first packet to the
// gateway, so it may come a little later: the watcher looks again a few times ([Delta].Learned). It stays known while the link stays,
// though the gateway falls silent. A Snapshot is a value: who keeps the one a race began with keeps the network it began on.
//
// # What is unknown
//
// A reading that failed is unknown (Snapshot.Known is false), never an empty one, and no change. Nothing here needs a permission.
//
// # Pure and impure
//
// [Diff], what judges a [Reading], the parsers and the clock of sleep are pure. The loop owns everything else.
package netwatch
