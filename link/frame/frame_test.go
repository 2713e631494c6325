package frame

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var (
	link     = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	instance = [16]byte{0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff}
)

// golden is every kind of frame in bytes. A line that changes is a new version of the protocol.
var golden = []struct {
	frame Frame
	hex   string
}{
	{Frame{Kind: Hello, Version: 1, Instance: instance, Boot: 300, Features: 5}, "01 0014 01 f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff ac02 05"},
	{Frame{Kind: New, Link: link, Gen: 1, Epoch: 1, Keep: Keep{Below: 2, List: []uint64{1}}, Age: 1500 * time.Millisecond}, "02 0018 000102030405060708090a0b0c0d0e0f 00 01 01 02 01 01 dc0b"},
	{Frame{Kind: NewOK, Link: link, Gen: 1}, "03 0011 000102030405060708090a0b0c0d0e0f 01"},
	{Frame{Kind: Attach, Link: link, Role: Standby, Gen: 200, Epoch: 7, Keep: Keep{Below: 201, List: []uint64{3, 200}}}, "04 001b 000102030405060708090a0b0c0d0e0f 01 c801 07 c901 02 03 c801 00"},
	{Frame{Kind: AttachOK, Link: link, Gen: 200}, "05 0012 000102030405060708090a0b0c0d0e0f c801"},
	{Frame{Kind: AttachNo, Link: link, Gen: 200, Code: 3}, "06 0013 000102030405060708090a0b0c0d0e0f c801 03"},
	{Frame{Kind: Check}, "07 0000"},
	{Frame{Kind: CheckOK, Instance: instance, Boot: 2}, "08 0011 f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff 02"},
	{Frame{Kind: Bye, Code: 1 << 31}, "09 0005 8080808008"},
	{Frame{Kind: Open, Stream: 1, Priority: 2, Hold: 90 * time.Second, Target: "localhost:22"}, "10 0011 01 02 90bf05 6c6f63616c686f73743a3232"},
	{Frame{Kind: Opened, Stream: 128}, "11 0002 8001"},
	{Frame{Kind: Refused, Stream: 1, Code: 6}, "12 0002 01 06"},
	{Frame{Kind: Data, Stream: 1, Offset: 1 << 20, Data: []byte("hi")}, "13 0006 01 808040 6869"},
	{Frame{Kind: Data, Stream: maxUint, Offset: maxUint}, "13 0012 ffffffffffffffff3f ffffffffffffffff3f"},
	{Frame{Kind: State, Stream: 1, Offset: 2, Limit: 32770}, "14 0005 01 02 828002"},
	{Frame{Kind: Fin, Stream: 1, Offset: 9}, "15 0002 01 09"},
	{Frame{Kind: Reset, Stream: 1, Code: 16, Offset: 9}, "16 0003 01 10 09"},
	{Frame{Kind: Stop, Stream: 1, Code: 16}, "17 0002 01 10"},
	{Frame{Kind: Gone, Stream: 1}, "18 0001 01"},
	{Frame{Kind: Seen, Count: 300, Delay: 2 * time.Millisecond}, "20 0004 ac02 d00f"},
	{Frame{Kind: Ping, ID: 4, Data: []byte{0, 0}}, "21 0003 04 0000"},
	{Frame{Kind: Pong, ID: 4}, "22 0001 04"},
	{Frame{Kind: Switch, Planned: true, Epoch: 8, Gen: 3, Keep: Keep{Below: 4}}, "23 0005 01 08 03 04 00"},
	{Frame{Kind: Drain, Epoch: 8}, "24 0001 08"},
	{Frame{Kind: Close, Link: link, Code: 2}, "25 0011 000102030405060708090a0b0c0d0e0f 02"},
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden(t *testing.T) {
	seen := map[Kind]bool{}
	for _, test := range golden {
		t.Run(test.frame.Kind.String(), func(t *testing.T) {
			seen[test.frame.Kind] = true
			want := unhex(t, test.hex)
			if got := Append([]byte("before"), &test.frame); !bytes.Equal(got[6:], want) {
				t.Fatalf("encoded %x, want %x", got[6:], want)
			}
			var f Frame
			n, err := Parse(append(bytes.Clone(want), "behind"...), &f)
			if err != nil || n != len(want) {
				t.Fatalf("parsed %d of %d bytes: %v", n, len(want), err)
			}
			if diff := cmp.Diff(test.frame, f, nilIsEmpty); diff != "" {
				t.Fatal(diff)
			}
			for i := range want {
				if n, err := Parse(want[:i], &f); n != 0 || err != nil {
					t.Fatalf("the first %d bytes: %d, %v", i, n, err)
				}
			}
		})
	}
	for kind := range kindNames {
		if !seen[kind] {
			t.Errorf("no vector for %v", kind)
		}
	}
}

var nilIsEmpty = cmpopts.EquateEmpty()

// TestShorterIsMalformed cuts each frame's fields, its length told truly.
func TestShorterIsMalformed(t *testing.T) {
	for _, test := range golden {
		whole := unhex(t, test.hex)
		least := len(whole) - len(test.frame.Data) - len(test.frame.Target)
		for n := Header; n < least; n++ {
			b := bytes.Clone(whole[:n])
			b[1], b[2] = byte((n-Header)>>8), byte(n-Header)
			if _, err := Parse(b, new(Frame)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v of %d bytes: %v", test.frame.Kind, n, err)
			}
		}
	}
}

// TestLaterFieldsAreSkipped: a later version may add fields behind those known, but for kinds that end in bytes.
func TestLaterFieldsAreSkipped(t *testing.T) {
	for _, test := range golden {
		switch test.frame.Kind {
		case Open, Data, Ping, Pong:
			continue
		}
		b := append(unhex(t, test.hex), 0xff, 0xff)
		b[2] += 2
		var f Frame
		if n, err := Parse(b, &f); err != nil || n != len(b) {
			t.Errorf("%v: %d, %v", test.frame.Kind, n, err)
		}
		if diff := cmp.Diff(test.frame, f, nilIsEmpty); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		name, hex string
		want      error
	}{
		{"a frame longer than a record", "13 3ffe", ErrTooLong},
		{"the longest length", "13 ffff", ErrTooLong},
		{"an unknown critical kind", "3f 0000", ErrUnknown},
		{"kind 0", "00 0000", ErrUnknown},
		{"a number of 63 bits", "18 0009 ffffffffffffffff7f", ErrMalformed},
		{"a number that never ends", "18 000b ffffffffffffffffffff01", ErrMalformed},
		{"a code of 33 bits", "17 0006 01 8080808010", ErrMalformed},
		{"an unknown role", "04 0016 000102030405060708090a0b0c0d0e0f 03 01 01 02 00 00", ErrMalformed},
		{"a keep list of 33", "23 0005 00 01 01 01 21", ErrMalformed},
		{"a keep list that is not there", "23 0006 00 01 01 01 02 01", ErrMalformed},
		{"a target of 301 bytes", "10 0130 01 00 00" + strings.Repeat("61", 301), ErrMalformed},
	} {
		if _, err := Parse(unhex(t, test.hex), new(Frame)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	for _, s := range []string{"40 0000", "ff 0003 010203", "13 3ffd"} {
		if _, err := Parse(unhex(t, s), new(Frame)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestLongDurationsAreCutToAYear(t *testing.T) {
	var f Frame
	if _, err := Parse(unhex(t, "20 000a 01 ffffffffffffffff3f"), &f); err != nil || f.Delay != maxDuration {
		t.Fatalf("%v, %v", f.Delay, err)
	}
}

// anyFrame draws a frame that an honest side may send.
func anyFrame(t *rapid.T) Frame {
	kind := rapid.SampledFrom(kindList()).Draw(t, "kind")
	num := rapid.Uint64Range(0, maxUint)
	f := Frame{Kind: kind}
	set := func(p *uint64, name string) { *p = num.Draw(t, name) }
	id := func(p *[16]byte) { copy(p[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")) }
	code := func() { f.Code = rapid.Uint32().Draw(t, "code") }
	keep := func() {
		set(&f.Keep.Below, "below")
		f.Keep.List = rapid.SliceOfN(num, 0, MaxKeep).Draw(t, "list")
	}
	duration := func(unit time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(maxDuration/unit)).Draw(t, "duration")) * unit
	}
	payload := func(most int) { f.Data = rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, "bytes") }
	if kind >= Open && kind <= Gone {
		set(&f.Stream, "stream")
	}
	switch kind {
	case Hello:
		id(&f.Instance)
		set(&f.Version, "version")
		set(&f.Boot, "boot")
		set(&f.Features, "features")
	case CheckOK:
		id(&f.Instance)
		set(&f.Boot, "boot")
	case New, Attach:
		id(&f.Link)
		f.Role = Role(rapid.IntRange(0, 1).Draw(t, "role"))
		set(&f.Gen, "gen")
		set(&f.Epoch, "epoch")
		keep()
		f.Age = duration(time.Millisecond)
	case NewOK, AttachOK:
		id(&f.Link)
		set(&f.Gen, "gen")
	case AttachNo:
		id(&f.Link)
		set(&f.Gen, "gen")
		code()
	case Bye, Refused, Stop:
		code()
	case Open:
		f.Priority = rapid.Byte().Draw(t, "priority")
		f.Hold = duration(time.Millisecond)
		f.Target = rapid.StringN(0, -1, MaxTarget).Draw(t, "target")
	case Data:
		set(&f.Offset, "offset")
		payload(Max - DataOverhead)
	case State:
		set(&f.Offset, "next")
		set(&f.Limit, "limit")
	case Fin:
		set(&f.Offset, "final")
	case Reset:
		code()
		set(&f.Offset, "final")
	case Seen:
		set(&f.Count, "count")
		f.Delay = duration(time.Microsecond)
	case Ping, Pong:
		set(&f.ID, "id")
		payload(5000)
	case Switch:
		f.Planned = rapid.Bool().Draw(t, "planned")
		set(&f.Epoch, "epoch")
		set(&f.Gen, "gen")
		keep()
	case Drain:
		set(&f.Epoch, "epoch")
	case Close:
		id(&f.Link)
		code()
	}
	return f
}

func kindList() []Kind {
	var list []Kind
	for k := range 256 {
		if _, ok := kindNames[Kind(k)]; ok {
			list = append(list, Kind(k))
		}
	}
	return list
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := make([]Frame, rapid.IntRange(1, 4).Draw(t, "frames"))
		var b []byte
		for i := range frames {
			frames[i] = anyFrame(t)
			before := len(b)
			b = Append(b, &frames[i])
			if len(b)-before > Max {
				t.Fatalf("%v of %d bytes", frames[i].Kind, len(b)-before)
			}
		}
		for _, want := range frames {
			var f Frame
			n, err := Parse(b, &f)
			if err != nil || n == 0 {
				t.Fatalf("%d, %v", n, err)
			}
			b = b[n:]
			if diff := cmp.Diff(want, f, nilIsEmpty); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// appendData is BeginData, the bytes, EndData.
func appendData(b []byte, stream, offset uint64, p []byte) []byte {
	b, start := BeginData(b, stream, offset)
	b = append(b, p...)
	EndData(b, start)
	return b
}

func TestAppendDataIsAppend(t *testing.T) {
	f := Frame{Kind: Data, Stream: 77, Offset: 1 << 40, Data: []byte("bytes")}
	if a, b := Append(nil, &f), appendData(nil, f.Stream, f.Offset, f.Data); !bytes.Equal(a, b) {
		t.Fatalf("%x, %x", a, b)
	}
	most := appendData(nil, maxUint, maxUint, make([]byte, Max-DataOverhead))
	if n, err := Parse(most, &f); n != Max || err != nil {
		t.Fatalf("the largest DATA: %d, %v", n, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, test := range golden {
		f.Add(unhex(f, test.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var x, y Frame
		n, err := Parse(b, &x)
		if err != nil || n == 0 {
			return
		}
		if n > len(b) || n > Max {
			t.Fatalf("%d bytes of %d", n, len(b))
		}
		once := Append(nil, &x)
		if len(once) > n {
			t.Fatalf("%x became longer: %x", b[:n], once)
		}
		if n, err := Parse(once, &y); err != nil || n != len(once) {
			t.Fatalf("%x does not parse again: %v", once, err)
		}
		if twice := Append(nil, &y); !bytes.Equal(once, twice) {
			t.Fatalf("%x, then %x", once, twice)
		}
	})
}

func BenchmarkData(b *testing.B) {
	buf, p := make([]byte, 0, Max), make([]byte, Max-DataOverhead)
	var f Frame
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		buf = appendData(buf[:0], 1, 1<<30, p)
		if n, err := Parse(buf, &f); n == 0 || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkState(b *testing.B) {
	buf := make([]byte, 0, Max)
	s, f := Frame{Kind: State, Stream: 1, Offset: 1 << 30, Limit: 1 << 31}, Frame{}
	b.ReportAllocs()
	for b.Loop() {
		buf = Append(buf[:0], &s)
		if n, err := Parse(buf, &f); n == 0 || err != nil {
			b.Fatal(err)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	buf, p := make([]byte, 0, Max), make([]byte, 1000)
	var f Frame
	frames := []Frame{{Kind: State}, {Kind: Seen, Count: 5}, {Kind: Ping}, {Kind: Fin}}
	if n := testing.AllocsPerRun(100, func() {
		buf = appendData(buf[:0], 1, 2, p)
		for i := range frames {
			buf = Append(buf, &frames[i])
		}
		for b := buf; len(b) > 0; {
			n, err := Parse(b, &f)
			if err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
