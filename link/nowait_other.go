//go:build !unix

package link

// readSome reads behind w, at most most bytes.
func (c *outConn) readSome(most int) (n int, err error) {
	if c.in == nil {
		c.in = readAheads.Get().(*[readAhead]byte)
	}
	return c.Conn.Read(c.in[c.w:][:min(most, readAhead-c.w)])
}
