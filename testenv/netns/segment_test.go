package netns

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// frame builds a TCP segment of a dial, over IPv4 or IPv6.
func frame(t testing.TB, ip, tcp string) []byte {
	t.Helper()
	const macs = "020000000002" + "020000000001"
	b, err := hex.DecodeString(macs + ip + tcp)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	head4 = "0800" + "4500002800010000400600000a0000010a000002"
	head6 = "86dd" + "600000000014064020010db8000000000000000000000001" + "20010db8000000000000000000000002"
	syn   = "c0010050000003e80000000050020200" + "00000000"
	ack   = "c0010050000003e800001f4050100200" + "00000000"
)

func TestSegmentReset(t *testing.T) {
	for _, c := range []struct {
		name, ip, tcp  string
		refuse, reset  bool // is it answered by these faults
		seq, ack       uint32
		flags          byte
		replySize, src int
	}{
		{"a dial over IPv4", head4, syn, true, false, 0, 1001, flagRST | flagACK, 54, 26},
		{"a dial over IPv6", head6, syn, true, false, 0, 1001, flagRST | flagACK, 74, 22},
		{"an acknowledgement over IPv4", head4, ack, false, true, 8000, 0, flagRST, 54, 26},
		{"an acknowledgement over IPv6", head6, ack, false, true, 8000, 0, flagRST, 74, 22},
	} {
		in := frame(t, c.ip, c.tcp)
		s, ok := parseSegment(in)
		if !ok {
			t.Fatalf("%s is not read", c.name)
		}
		if got := (Faults{Refuse: true}).answered(s); got != c.refuse {
			t.Errorf("%s: Refuse answers: %v", c.name, got)
		}
		if got := (Faults{Reset: true}).answered(s); got != c.reset {
			t.Errorf("%s: Reset answers: %v", c.name, got)
		}
		buf := make([]byte, 100)
		out := buf[:s.reset(buf)]
		r, ok := parseSegment(out)
		if !ok || len(out) != c.replySize {
			t.Fatalf("%s: the answer has %d bytes and reads: %v", c.name, len(out), ok)
		}
		if got := binary.BigEndian.Uint32(r.tcp[4:]); got != c.seq {
			t.Errorf("%s: sequence number %d, want %d", c.name, got, c.seq)
		}
		if got := binary.BigEndian.Uint32(r.tcp[8:]); got != c.ack {
			t.Errorf("%s: acknowledges %d, want %d", c.name, got, c.ack)
		}
		if r.flags() != c.flags {
			t.Errorf("%s: flags %#x, want %#x", c.name, r.flags(), c.flags)
		}
		size := (len(r.ip) - 8) / 2 // of an address: what is left of the header behind the first 8 or 12 bytes
		if len(r.ip) == 20 {
			size = 4
		}
		if !bytes.Equal(out[c.src:c.src+size], in[c.src+size:c.src+2*size]) || !bytes.Equal(out[:6], in[6:12]) {
			t.Errorf("%s: the answer goes elsewhere: %x", c.name, out)
		}
	}
}

// FuzzSegment reads any frame; what is answered is answered by something that reads as an RST which needs no answer.
func FuzzSegment(f *testing.F) {
	for _, ip := range []string{head4, head6} {
		for _, tcp := range []string{syn, ack} {
			f.Add(frame(f, ip, tcp))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s, ok := parseSegment(in)
		if !ok {
			return
		}
		buf := make([]byte, 100)
		r, ok := parseSegment(buf[:s.reset(buf)])
		if !ok || r.flags()&flagRST == 0 || (Faults{Refuse: true, Reset: true}).answered(r) {
			t.Fatalf("%x is answered by %x", in, buf)
		}
		if len(r.ip) == 20 && checksum(0, r.ip) != 0 {
			t.Errorf("the checksum of IP is wrong: %x", r.ip)
		}
		addrs := r.ip[8:]
		if len(r.ip) == 20 {
			addrs = r.ip[12:]
		}
		if checksum(partial(protoTCP+tcpHeader, addrs), r.tcp) != 0 {
			t.Errorf("the checksum of TCP is wrong: %x", r.tcp)
		}
	})
}

func TestIsARP(t *testing.T) {
	frame := make([]byte, 42)
	frame[12], frame[13] = 0x08, 0x06
	if !isARP(frame) || isARP(frame[:13]) {
		t.Error("a request for an address is not taken for one, or a piece of a frame is")
	}
	frame[13] = 0
	if isARP(frame) {
		t.Error("IPv4 is taken for ARP")
	}
}
