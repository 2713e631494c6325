// Package pipe holds the one two-way copy in the tree: bytes between an app's connection and a peer's.
//
// Its promises:
//   - Half-close passes both ways. The end of one direction never cuts the other.
//   - A failed write stops one direction only: what the other end still has to say is delivered whole, while what can
//     no longer be delivered is read and dropped, so that nobody blocks and closing does not destroy bytes on their way.
//   - Who has ended its own way is watched still: once it is gone altogether (a process that was killed), a silent other side
//     does not keep the pair. Where the system does not tell (Windows), the next write to it finds out.
//   - A reset of one side becomes a reset of the other, never a clean end. (Unix sockets know no reset: there the other
//     side sees an end.)
//   - An idle pair holds no buffer, and one goroutine if the peer's connection can say when it is readable.
//
// Besides net.Conn it uses what a connection offers, found by type assertion:
//
//	CloseWrite() error                                  half-close; a connection without it ends the copy at the first end
//	Reset(code uint32)                                  abort; *net.TCPConn and *tls.Conn over it are reset by SO_LINGER 0
//	WaitReadable() error                                waits for a byte, an end or an error; *net.TCPConn and *net.UnixConn are waited for by pipe itself
//	ReadFrom(r io.Reader) (int64, error)                fills the connection from r; nil at r's end. r may offer WaitReadable
//	Socket() net.Conn                                   the peer's side: what is wrapped, which is copied from and to in its place
//	OnReadable(func()); WriteAvailable(io.Writer)       the peer's side: called back when there is something, then drained without waiting
package pipe
