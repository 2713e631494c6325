// Package frame is the wire format of a link: the frames two linkproxy processes exchange on a carrier once TLS stands.
// It encodes and parses; it decides nothing. docs/wire.md is the same table in words.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Kind is a frame's type byte. Kinds below 0x40 are critical: a receiver that does not know one ends the carrier.
// Kinds from 0x40 up are ignorable: a receiver that does not know one skips it, so later versions can add hints.
type Kind uint8

// Frames of the opening exchange; they are not counted by SEEN.
const (
	Hello    Kind = 0x01 // version, instance, boot, features; first frame of both sides
	New      Kind = 0x02 // link, gen, role active, epoch, keep, age
	NewOK    Kind = 0x03 // link, gen
	Attach   Kind = 0x04 // link, gen, role, epoch, keep
	AttachOK Kind = 0x05 // link, gen
	AttachNo Kind = 0x06 // link, gen, code
	Check    Kind = 0x07 // nothing
	CheckOK  Kind = 0x08 // instance, boot
	Bye      Kind = 0x09 // code: the reason of a refusal before any attach
)

// Frames of streams.
const (
	Open    Kind = 0x10 // stream, priority, hold, target
	Opened  Kind = 0x11 // stream
	Refused Kind = 0x12 // stream, code
	Data    Kind = 0x13 // stream, offset, bytes
	State   Kind = 0x14 // stream, next offset, credit limit
	Fin     Kind = 0x15 // stream, final
	Reset   Kind = 0x16 // stream, code, final
	Stop    Kind = 0x17 // stream, code
	Gone    Kind = 0x18 // stream
)

// Frames of carriers and of the link.
const (
	Seen   Kind = 0x20 // count, delay
	Ping   Kind = 0x21 // id, padding
	Pong   Kind = 0x22 // id, padding of the same length
	Switch Kind = 0x23 // epoch, gen, keep, planned
	Drain  Kind = 0x24 // epoch
	Close  Kind = 0x25 // link (zero: this carrier only), code
)

var kindNames = map[Kind]string{
	Hello: "HELLO", New: "NEW", NewOK: "NEW_OK", Attach: "ATTACH", AttachOK: "ATTACH_OK", AttachNo: "ATTACH_NO",
	Check: "CHECK", CheckOK: "CHECK_OK", Bye: "BYE", Open: "OPEN", Opened: "OPENED", Refused: "REFUSED", Data: "DATA",
	State: "STATE", Fin: "FIN", Reset: "RESET", Stop: "STOP", Gone: "GONE", Seen: "SEEN", Ping: "PING", Pong: "PONG",
	Switch: "SWITCH", Drain: "DRAIN", Close: "CLOSE",
}

// String is the kind's name in docs/wire.md.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("0x%02x", uint8(k))
}

// ignorable is the first kind that an older receiver may skip.
const ignorable Kind = 0x40

// Sizes in bytes.
const (
	// Max is the largest frame, header included: with its header a frame fits one TLS record (16 KiB), so a receiver can
	// act on it as soon as one record has come.
	Max = 16 << 10
	// Header is the size of a frame's fixed header: kind, length.
	Header = 3
	// DataOverhead is the most that DATA adds to its bytes: header, two 62-bit varints of at most 9 bytes each.
	DataOverhead = Header + 9 + 9
	// MaxTarget is the longest target in bytes: a 253-byte name, a colon, a port, and room for a zone.
	MaxTarget = 300
	// MaxKeep is the most generations a keep list may name: 8 dials at once and the attached carriers.
	MaxKeep = 32
)

// Version is the version of the protocol that HELLO carries and the ALPN names.
const Version = 1

// Role is what an attaching carrier wants to be.
type Role uint8

// The roles of NEW and ATTACH.
const (
	Active  Role = 0 // carries the link at once
	Standby Role = 1 // attached, idle until a switch names it
	Bulk    Role = 2 // carries the stream bytes of bulk beside the active one, over the same route
)

// Keep tells the host which generations the client still knows: every attached one below Below that List does not name
// is to be closed.
type Keep struct {
	Below uint64
	List  []uint64
}

// Holds says whether gen is one the client still knows or may yet use.
func (k Keep) Holds(gen uint64) bool {
	if gen >= k.Below {
		return true
	}
	for _, g := range k.List {
		if g == gen {
			return true
		}
	}
	return false
}

// Frame is any frame; which fields count depends on Kind (see the constants).
type Frame struct {
	Kind     Kind
	Planned  bool
	Role     Role
	Priority uint8
	Code     uint32
	Stream   uint64
	Offset   uint64 // DATA: offset; STATE: next; FIN, RESET: final
	Limit    uint64 // STATE: the credit limit, an absolute offset
	ID       uint64 // PING, PONG
	Count    uint64 // SEEN
	Epoch    uint64
	Gen      uint64
	Version  uint64
	Boot     uint64
	Features uint64
	Delay    time.Duration // SEEN, in µs on the wire
	Hold     time.Duration // OPEN, in ms on the wire
	Age      time.Duration // NEW, in ms on the wire
	Link     [16]byte
	Instance [16]byte
	Keep     Keep
	Target   string
	Data     []byte // DATA: the bytes; PING, PONG: padding. Parsed: points into the input
}

// Errors of Parse. A carrier on which one occurs is of no further use.
var (
	ErrTooLong   = errors.New("frame: longer than 16 KiB")
	ErrUnknown   = errors.New("frame: unknown critical kind")
	ErrMalformed = errors.New("frame: malformed")
)

// BeginData appends a DATA frame without its bytes: the caller appends them and calls EndData with start. It is the one
// frame with a fast path, as everything else is rare; its bytes may come from several places.
func BeginData(b []byte, stream, offset uint64) (_ []byte, start int) {
	start = len(b)
	b = append(b, byte(Data), 0, 0)
	b = binary.AppendUvarint(b, stream)
	return binary.AppendUvarint(b, offset), start
}

// EndData completes the frame that BeginData began at start.
func EndData(b []byte, start int) {
	binary.BigEndian.PutUint16(b[start+1:], uint16(len(b)-start-Header))
}

// Append appends f's encoding to b. The caller keeps a frame within Max.
func Append(b []byte, f *Frame) []byte {
	start := len(b)
	b = append(b, byte(f.Kind), 0, 0)
	u := binary.AppendUvarint
	switch f.Kind {
	case Hello:
		b = append(u(b, f.Version), f.Instance[:]...)
		b = u(u(b, f.Boot), f.Features)
	case CheckOK:
		b = u(append(b, f.Instance[:]...), f.Boot)
	case New, Attach:
		b = append(append(b, f.Link[:]...), byte(f.Role))
		b = appendKeep(u(u(b, f.Gen), f.Epoch), f.Keep)
		b = u(b, uint64(f.Age/time.Millisecond))
	case NewOK, AttachOK:
		b = u(append(b, f.Link[:]...), f.Gen)
	case AttachNo:
		b = u(u(append(b, f.Link[:]...), f.Gen), uint64(f.Code))
	case Check:
	case Bye:
		b = u(b, uint64(f.Code))
	case Open:
		b = append(u(b, f.Stream), f.Priority)
		b = u(b, uint64(f.Hold/time.Millisecond))
		b = append(b, f.Target...)
	case Opened, Gone:
		b = u(b, f.Stream)
	case Refused, Stop:
		b = u(u(b, f.Stream), uint64(f.Code))
	case Data:
		b = append(u(u(b, f.Stream), f.Offset), f.Data...)
	case State:
		b = u(u(u(b, f.Stream), f.Offset), f.Limit)
	case Fin:
		b = u(u(b, f.Stream), f.Offset)
	case Reset:
		b = u(u(u(b, f.Stream), uint64(f.Code)), f.Offset)
	case Seen:
		b = u(u(b, f.Count), uint64(f.Delay/time.Microsecond))
	case Ping, Pong:
		b = append(u(b, f.ID), f.Data...)
	case Switch:
		planned := byte(0)
		if f.Planned {
			planned = 1
		}
		b = appendKeep(u(u(append(b, planned), f.Epoch), f.Gen), f.Keep)
	case Drain:
		b = u(b, f.Epoch)
	case Close:
		b = u(append(b, f.Link[:]...), uint64(f.Code))
	default:
		b = append(b, f.Data...) // an ignorable kind made by a test
	}
	binary.BigEndian.PutUint16(b[start+1:], uint16(len(b)-start-Header))
	return b
}

func appendKeep(b []byte, k Keep) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, k.Below), uint64(len(k.List)))
	for _, g := range k.List {
		b = binary.AppendUvarint(b, g)
	}
	return b
}

// Whole says whether b begins with a whole frame, or with what can never become one.
func Whole(b []byte) bool {
	if len(b) < Header {
		return false
	}
	n := int(binary.BigEndian.Uint16(b[1:])) + Header
	return n > Max || len(b) >= n
}

// Parse reads the first frame of b into f and returns its whole length. It returns 0 and no error while b does not hold
// a whole frame. A known frame may be followed, inside its length, by fields of a later version; they are skipped.
// f.Data and nothing else points into b.
func Parse(b []byte, f *Frame) (int, error) {
	if len(b) < Header {
		return 0, nil
	}
	kind := Kind(b[0])
	n := int(binary.BigEndian.Uint16(b[1:])) + Header
	if n > Max {
		return 0, ErrTooLong
	}
	if len(b) < n {
		return 0, nil
	}
	if kind == Data {
		*f = Frame{Kind: Data}
		r := reader{b: b[Header:n]}
		f.Stream, f.Offset = r.uint(), r.uint()
		f.Data = r.b
		if r.bad {
			return 0, fmt.Errorf("%w: DATA", ErrMalformed)
		}
		return n, nil
	}
	*f = Frame{Kind: kind}
	r := reader{b: b[Header:n]}
	if !r.body(f) {
		if kind < ignorable {
			return 0, fmt.Errorf("%w 0x%02x", ErrUnknown, byte(kind))
		}
		return n, nil
	}
	if r.bad {
		return 0, fmt.Errorf("%w: kind 0x%02x", ErrMalformed, byte(kind))
	}
	return n, nil
}

// body reads the fields of f.Kind; false: the kind is unknown.
func (r *reader) body(f *Frame) bool {
	switch f.Kind {
	case Hello:
		f.Version, f.Instance = r.uint(), r.id()
		f.Boot, f.Features = r.uint(), r.uint()
	case CheckOK:
		f.Instance, f.Boot = r.id(), r.uint()
	case New, Attach:
		f.Link, f.Role = r.id(), Role(r.byte())
		f.Gen, f.Epoch = r.uint(), r.uint()
		f.Keep = r.keep()
		f.Age = r.duration(time.Millisecond)
		r.bad = r.bad || f.Role > Bulk
	case NewOK, AttachOK:
		f.Link, f.Gen = r.id(), r.uint()
	case AttachNo:
		f.Link, f.Gen, f.Code = r.id(), r.uint(), r.code()
	case Check:
	case Bye:
		f.Code = r.code()
	case Open:
		f.Stream, f.Priority = r.uint(), r.byte()
		f.Hold = r.duration(time.Millisecond)
		if len(r.b) > MaxTarget {
			r.bad = true
			return true
		}
		f.Target = string(r.b)
	case Opened, Gone:
		f.Stream = r.uint()
	case Refused, Stop:
		f.Stream, f.Code = r.uint(), r.code()
	case State:
		f.Stream, f.Offset, f.Limit = r.uint(), r.uint(), r.uint()
	case Fin:
		f.Stream, f.Offset = r.uint(), r.uint()
	case Reset:
		f.Stream, f.Code, f.Offset = r.uint(), r.code(), r.uint()
	case Seen:
		f.Count, f.Delay = r.uint(), r.duration(time.Microsecond)
	case Ping, Pong:
		f.ID = r.uint()
		f.Data = r.b
	case Switch:
		f.Planned = r.byte() == 1
		f.Epoch, f.Gen = r.uint(), r.uint()
		f.Keep = r.keep()
	case Drain:
		f.Epoch = r.uint()
	case Close:
		f.Link, f.Code = r.id(), r.code()
	default:
		return false
	}
	return true
}

// reader takes fields off b; after the first that is not there, bad is set and everything reads as zero.
type reader struct {
	b   []byte
	bad bool
}

// maxUint keeps every number within 62 bits, so that sums of two never overflow.
const maxUint = 1<<62 - 1

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > maxUint {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) code() uint32 {
	v := r.uint()
	if v > 1<<32-1 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// maxDuration bounds what a peer may claim; a year is longer than any hold.
const maxDuration = 366 * 24 * time.Hour

func (r *reader) duration(unit time.Duration) time.Duration {
	v := r.uint()
	if v > uint64(maxDuration/unit) {
		return maxDuration
	}
	return time.Duration(v) * unit
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) id() (id [16]byte) {
	if len(r.b) < len(id) {
		r.bad, r.b = true, nil
		return id
	}
	copy(id[:], r.b)
	r.b = r.b[len(id):]
	return id
}

func (r *reader) keep() (k Keep) {
	k.Below = r.uint()
	n := r.uint()
	if n > MaxKeep {
		r.bad = true
		return k
	}
	for range n {
		k.List = append(k.List, r.uint())
	}
	return k
}
