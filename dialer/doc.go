// Package dialer brings an app's stream to a peer it names. It owns one loop per peer; the loop owns the peer's link, the
// races for its carriers, reconnecting, the dial budget and the apps that wait. What is decided and why is dialer/route's
// affair, which bytes go where is link's: this package carries both out.
//
// Only a peer's loop touches the peer's state. Everybody else sends it a message and, where an answer is due, waits for
// it; the loop itself never waits for anything but its next message.
package dialer
