package netns

import "encoding/binary"

// What follows is of Ethernet II (RFC 894), IPv4 (RFC 791), IPv6 (RFC 8200) and TCP (RFC 9293, section 3.1).
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806 // RFC 826
	etherIPv6 = 0x86dd
	protoTCP  = 6
	tcpHeader = 20

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

func isARP(frame []byte) bool {
	return len(frame) >= etherHeader && binary.BigEndian.Uint16(frame[12:]) == etherARP
}

// segment is a frame that carries TCP: views into it.
type segment struct {
	ether, ip, tcp []byte
	payload        int
}

// parseSegment reads a frame; false: it is no TCP, is a fragment or has IPv6 extension headers.
func parseSegment(frame []byte) (s segment, ok bool) {
	if len(frame) < etherHeader+1 {
		return s, false
	}
	kind := binary.BigEndian.Uint16(frame[12:])
	s.ether, s.ip = frame[:etherHeader], frame[etherHeader:]
	header, total, proto := 0, 0, byte(0)
	switch {
	case kind == etherIPv4 && len(s.ip) >= 20 && s.ip[0]>>4 == 4:
		header, total, proto = int(s.ip[0]&15)*4, int(binary.BigEndian.Uint16(s.ip[2:])), s.ip[9]
		if header < 20 || binary.BigEndian.Uint16(s.ip[6:])&0x1fff != 0 {
			return s, false
		}
	case kind == etherIPv6 && len(s.ip) >= 40 && s.ip[0]>>4 == 6:
		header, total, proto = 40, 40+int(binary.BigEndian.Uint16(s.ip[4:])), s.ip[6]
	}
	if proto != protoTCP || total > len(s.ip) || total < header+tcpHeader {
		return s, false
	}
	s.tcp = s.ip[header:total]
	s.ip = s.ip[:header]
	offset := int(s.tcp[12]>>4) * 4
	if offset < tcpHeader || offset > len(s.tcp) {
		return s, false
	}
	s.payload = len(s.tcp) - offset
	return s, true
}

func (s segment) flags() byte { return s.tcp[13] }

// opens says whether the segment asks for a connection.
func (s segment) opens() bool { return s.flags()&(flagSYN|flagACK|flagRST) == flagSYN }

// answered says whether the faults make a router on the way answer the frame by RST, in place of passing it on.
func (f Faults) answered(s segment) bool {
	if s.flags()&flagRST != 0 {
		return false
	}
	return f.Refuse && s.opens() || f.Reset && !s.opens()
}

// reset writes to buf the frame that the segment's receiver would send if it knew nothing of the connection
// (RFC 9293, section 3.10.7.1), and returns its length.
func (s segment) reset(buf []byte) int {
	n := copy(buf, s.ether[6:12])
	n += copy(buf[n:], s.ether[:6])
	n += copy(buf[n:], s.ether[12:])
	ip := buf[n:]
	var sum uint32 // of what TCP's checksum covers of IP
	if s.ip[0]>>4 == 4 {
		ip = ip[:20]
		clear(ip)
		ip[0], ip[8], ip[9] = 0x45, 64, protoTCP
		binary.BigEndian.PutUint16(ip[2:], 20+tcpHeader)
		copy(ip[12:], s.ip[16:20])
		copy(ip[16:], s.ip[12:16])
		binary.BigEndian.PutUint16(ip[10:], checksum(0, ip))
		sum = partial(0, ip[12:])
	} else {
		ip = ip[:40]
		clear(ip)
		ip[0], ip[6], ip[7] = 0x60, protoTCP, 64
		binary.BigEndian.PutUint16(ip[4:], tcpHeader)
		copy(ip[8:], s.ip[24:40])
		copy(ip[24:], s.ip[8:24])
		sum = partial(0, ip[8:])
	}
	n += len(ip)
	tcp := buf[n : n+tcpHeader]
	clear(tcp)
	copy(tcp, s.tcp[2:4])
	copy(tcp[2:], s.tcp[:2])
	tcp[12] = tcpHeader / 4 << 4
	if s.flags()&flagACK != 0 {
		copy(tcp[4:], s.tcp[8:12])
		tcp[13] = flagRST
	} else {
		next := binary.BigEndian.Uint32(s.tcp[4:]) + uint32(s.payload)
		for _, f := range []byte{flagSYN, flagFIN} { // each takes a number
			if s.flags()&f != 0 {
				next++
			}
		}
		binary.BigEndian.PutUint32(tcp[8:], next)
		tcp[13] = flagRST | flagACK
	}
	binary.BigEndian.PutUint16(tcp[16:], checksum(sum+protoTCP+tcpHeader, tcp))
	return n + tcpHeader
}

// partial adds up 16-bit words (RFC 1071); b has an even length.
func partial(sum uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	return sum
}

func checksum(sum uint32, b []byte) uint16 {
	sum = partial(sum, b)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
