package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// rules parses an allow list.
func rules(t testing.TB, list ...string) []Rule {
	t.Helper()
	out := []Rule{}
	for _, s := range list {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// answers is a resolver that knows these names only; it fails the test when a literal is looked up.
func answers(t testing.TB, names map[string]string) func(context.Context, string) ([]netip.Addr, error) {
	return func(_ context.Context, name string) ([]netip.Addr, error) {
		if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
			t.Errorf("%q was looked up", name)
		}
		list, ok := names[name]
		if !ok {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}
		var addrs []netip.Addr
		for f := range strings.FieldsSeq(list) {
			addrs = append(addrs, netip.MustParseAddr(f))
		}
		return addrs, nil
	}
}

func reasonOf(err error) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) {
		return r.Reason()
	}
	return ""
}

func join(addrs []netip.AddrPort) string {
	var s []string
	for _, a := range addrs {
		s = append(s, a.String())
	}
	return strings.Join(s, " ")
}

// ownAddr is an address of the machine the tests pretend to run on.
const ownAddr = "10.1.1.1"

func TestJudge(t *testing.T) {
	dns := map[string]string{
		"db.internal":           "10.20.0.5 fd00::5",
		"git.corp.example.com":  "203.0.113.9",
		"evil.corp.example.com": "127.0.0.1 ::1 169.254.169.254 fe80::1 10.1.1.1 0.0.0.0 :: ::ffff:127.0.0.1 ::ffff:10.1.1.1",
		"nat.corp.example.com":  "64:ff9b::cb00:7109",
		"natevil.corp.example.com": "64:ff9b::7f00:1 64:ff9b::a01:101 64:ff9b::a9fe:a9fe 64:ff9b::0 64:ff9b:1::7f00:1 " +
			"2002:7f00:1::1 2002:a01:101::1 2001::80ff:fffe ::ffff:0:7f00:1 ::7f00:1 224.0.0.1 ff02::1 255.255.255.255 0.1.2.3 fe80::1%eth0",
		"mixed.corp.example.com": "127.0.0.1 203.0.113.9 203.0.113.9 ::ffff:203.0.113.9",
		"corp.example.com":       "203.0.113.9",
		"zone.corp.example.com":  "2001:db8::9%eth0",
		"dup.internal":           "10.20.0.5",
	}
	def := []string(nil)
	corp := []string{"*.corp.example.com:443"}
	for _, c := range []struct {
		allow  []string // nil = default
		target string
		want   string // addresses, or the reason
		rule   string
	}{
		// The default: its own loopback.
		{def, "127.0.0.1:22", "127.0.0.1:22", "127.0.0.1:*"},
		{def, "[::1]:22", "[::1]:22", "127.0.0.1:*"},
		{def, "localhost:22", "127.0.0.1:22 [::1]:22", "127.0.0.1:*"},
		{def, "LocalHost.:65535", "127.0.0.1:65535 [::1]:65535", "127.0.0.1:*"},
		{def, "app.localhost:1", "127.0.0.1:1 [::1]:1", "127.0.0.1:*"},
		{def, "22", "127.0.0.1:22", "127.0.0.1:*"},
		{def, ":22", "127.0.0.1:22", "127.0.0.1:*"},
		{def, "127.0.0.1.:22", "127.0.0.1:22", "127.0.0.1:*"},
		{def, "[::ffff:127.0.0.1]:22", "127.0.0.1:22", "127.0.0.1:*"},
		{def, "[::FFFF:7F00:1]:22", "127.0.0.1:22", "127.0.0.1:*"},
		{def, "[0:0:0:0:0:0:0:1]:22", "[::1]:22", "127.0.0.1:*"},
		{def, "127.0.0.2:22", "not_allowed", ""},
		{def, "10.20.0.5:22", "not_allowed", ""},
		{def, ownAddr + ":22", "not_allowed", ""},
		{def, "git.corp.example.com:443", "not_allowed", ""},
		{def, "unknown.example:443", "not_found", ""},
		{def, "evil.corp.example.com:80", "127.0.0.1:80 [::1]:80", "127.0.0.1:*"}, // allowed under its address as well

		// Forms that must not slip through.
		{def, "0.0.0.0:22", "not_allowed", ""},
		{def, "[::]:22", "not_allowed", ""},
		{def, "[::ffff:0.0.0.0]:22", "not_allowed", ""},
		{def, "0:22", "not_allowed", ""},
		{def, "127.1:22", "not_allowed", ""},
		{def, "127.0.1:22", "not_allowed", ""},
		{def, "2130706433:22", "not_allowed", ""},
		{def, "0x7f000001:22", "not_allowed", ""},
		{def, "0X7F.0.0.1:22", "not_allowed", ""},
		{def, "0x7f.0.0.0x1:22", "not_allowed", ""},
		{def, "0177.0.0.1:22", "not_allowed", ""},
		{def, "127.0.0.01:22", "not_allowed", ""},
		{def, "127.0.0.1..:22", "not_allowed", ""},
		{def, "127.0.0.256:22", "not_allowed", ""},
		{def, "1.2.3.4.5:22", "not_allowed", ""},
		{def, "[127.0.0.1]:22", "not_allowed", ""},
		{def, "::1:22", "not_allowed", ""},
		{def, "[::1.]:22", "not_allowed", ""},
		{def, "[::1]", "not_allowed", ""},
		{def, "[]:22", "not_allowed", ""},
		{def, "[::1%lo]:22", "not_allowed", ""},
		{def, "[fe80::1%eth0]:22", "not_allowed", ""},
		{def, "127.0.0.1%lo:22", "not_allowed", ""},
		{def, "[::127.0.0.1]:22", "not_allowed", ""},
		{def, "[64:ff9b::127.0.0.1]:22", "not_allowed", ""},
		{def, "[::ffff:0:127.0.0.1]:22", "not_allowed", ""},
		{def, "①②⑦.0.0.1:22", "not_allowed", ""},
		{def, "127。0。0。1:22", "not_allowed", ""},
		{def, "bücher.example:443", "not_allowed", ""},
		{def, "local host:22", "not_allowed", ""},
		{def, " 127.0.0.1:22", "not_allowed", ""},
		{def, "localhost\x00.example:22", "not_allowed", ""},
		{def, "user@localhost:22", "not_allowed", ""},
		{def, "a..b:22", "not_allowed", ""},
		{def, "-a.b:22", "not_allowed", ""},
		{def, ".:22", "not_allowed", ""},
		{def, strings.Repeat("a", 64) + ":22", "not_allowed", ""},
		{def, strings.Repeat("a.", 127) + "b:22", "not_allowed", ""},
		{def, "", "not_allowed", ""},
		{def, ":", "not_allowed", ""},
		{def, "localhost", "not_allowed", ""},
		{def, "localhost:0", "not_allowed", ""},
		{def, "localhost:022", "not_allowed", ""},
		{def, "localhost:+22", "not_allowed", ""},
		{def, "localhost:-1", "not_allowed", ""},
		{def, "localhost:65536", "not_allowed", ""},
		{def, "localhost:99999999999999999999", "not_allowed", ""},
		{def, "localhost:ssh", "not_allowed", ""},
		{def, "localhost:２２", "not_allowed", ""},
		{def, "localhost:*", "not_allowed", ""},
		{def, "localhost:22-23", "not_allowed", ""},
		{def, "*:22", "not_allowed", ""},

		// Address rules.
		{[]string{}, "127.0.0.1:22", "not_allowed", ""},
		{[]string{"127.0.0.1:22"}, "localhost:22", "127.0.0.1:22 [::1]:22", "127.0.0.1:22"},
		{[]string{"127.0.0.1:22"}, "localhost:23", "not_allowed", ""},
		{[]string{"[::1]:5432"}, "localhost:5432", "[::1]:5432", "[::1]:5432"},
		{[]string{"[::1]:5432"}, "127.0.0.1:5432", "not_allowed", ""},
		{[]string{"127.0.0.0/8:*"}, "127.0.0.2:22", "127.0.0.2:22", "127.0.0.0/8:*"},
		{[]string{"10.20.0.0/16:*"}, "10.20.255.255:1", "10.20.255.255:1", "10.20.0.0/16:*"},
		{[]string{"10.20.0.0/16:*"}, "10.21.0.0:1", "not_allowed", ""},
		{[]string{"10.20.0.0/16:*"}, "[::ffff:10.20.0.1]:1", "10.20.0.1:1", "10.20.0.0/16:*"},
		{[]string{"10.20.0.0/16:*"}, "[64:ff9b::10.20.0.1]:1", "not_allowed", ""},
		{[]string{"10.20.0.0/16:*"}, "db.internal:1", "10.20.0.5:1", "10.20.0.0/16:*"},
		{[]string{"10.20.0.0/16:*"}, "evil.corp.example.com:1", "not_allowed", ""},
		{[]string{"10.20.0.0/16:8000-8100"}, "10.20.0.1:8100", "10.20.0.1:8100", "10.20.0.0/16:8000-8100"},
		{[]string{"10.20.0.0/16:8000-8100"}, "10.20.0.1:8101", "not_allowed", ""},
		{[]string{"[fd00::/8]:*", "10.20.0.0/16:*"}, "db.internal:1", "10.20.0.5:1 [fd00::5]:1", "[fd00::/8]:*"},
		{[]string{"0.0.0.0/0:*"}, "0.0.0.0:22", "not_allowed", ""},
		{[]string{"0.0.0.0/0:*"}, "0.0.0.1:22", "not_allowed", ""},
		{[]string{"0.0.0.0/0:*"}, "255.255.255.255:22", "not_allowed", ""},
		{[]string{"0.0.0.0/0:*"}, "224.0.0.1:22", "not_allowed", ""},
		{[]string{"0.0.0.0/0:*"}, "127.0.0.1:22", "127.0.0.1:22", "0.0.0.0/0:*"},
		{[]string{"0.0.0.0/0:*"}, "[::1]:22", "not_allowed", ""},
		{[]string{"[::/0]:*"}, "127.0.0.1:22", "not_allowed", ""},
		{[]string{"[::/0]:*"}, "[::ffff:127.0.0.1]:22", "not_allowed", ""},
		{[]string{"[::/0]:*"}, "[64:ff9b::127.0.0.1]:22", "not_allowed", ""},
		{
			[]string{"[::/0]:*"},
			"natevil.corp.example.com:22",
			"[64:ff9b::a01:101]:22 [64:ff9b:1::7f00:1]:22 [2002:a01:101::1]:22", "[::/0]:*",
		},
		{[]string{"[::/0]:*"}, "[::]:22", "not_allowed", ""},

		// Name rules.
		{corp, "git.corp.example.com:443", "203.0.113.9:443", "*.corp.example.com:443"},
		{corp, "GIT.Corp.Example.Com.:443", "203.0.113.9:443", "*.corp.example.com:443"},
		{corp, "git.corp.example.com:444", "not_allowed", ""},
		{corp, "203.0.113.9:443", "not_allowed", ""},
		{corp, "corp.example.com:443", "not_allowed", ""},
		{corp, "evilcorp.example.com:443", "not_allowed", ""},
		{corp, "git.corp.example.com.evil.example:443", "not_allowed", ""},
		{corp, "evil.corp.example.com:443", "not_allowed", ""}, // DNS rebinding
		{corp, "nat.corp.example.com:443", "[64:ff9b::cb00:7109]:443", "*.corp.example.com:443"},
		{corp, "natevil.corp.example.com:443", "not_allowed", ""},
		{corp, "mixed.corp.example.com:443", "203.0.113.9:443", "*.corp.example.com:443"},
		{corp, "gone.corp.example.com:443", "not_found", ""},
		{corp, "zone.corp.example.com:443", "not_found", ""},
		{append([]string{"127.0.0.1:443"}, corp...), "evil.corp.example.com:443", "127.0.0.1:443 [::1]:443", "127.0.0.1:443"},
		{append([]string{"127.0.0.1:443"}, corp...), "mixed.corp.example.com:443", "127.0.0.1:443 203.0.113.9:443", "127.0.0.1:443"},
		{[]string{"db.internal:5432"}, "db.internal:5432", "10.20.0.5:5432 [fd00::5]:5432", "db.internal:5432"},
		{[]string{"DB.internal.:5432"}, "db.internal:5432", "10.20.0.5:5432 [fd00::5]:5432", "db.internal:5432"},
		{[]string{"db.internal:5432"}, "x.db.internal:5432", "not_allowed", ""},
	} {
		p := &Policy{
			Resolve: answers(t, dns),
			Own:     func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(ownAddr)}, nil },
		}
		if c.allow != nil {
			p.Allow = rules(t, c.allow...)
		}
		addrs, rule, err := p.Judge(t.Context(), c.target)
		got, name := join(addrs), rule.String()
		if err != nil {
			got, name = reasonOf(err), ""
		}
		if got != c.want || name != c.rule {
			t.Errorf("allow %q: %q = %q by %q, want %q by %q (%v)", c.allow, c.target, got, name, c.want, c.rule, err)
		}
	}
}

func TestNothingIsLookedUpThatNoRuleCouldAllow(t *testing.T) {
	p := &Policy{
		Allow: rules(t, "db.internal:5432", "10.0.0.0/8:80"),
		Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
			t.Errorf("%s was looked up", name)
			return nil, nil
		},
	}
	for _, target := range []string{"db.internal:5433", "other.internal:5432"} {
		if _, _, err := p.Judge(t.Context(), target); reasonOf(err) != "not_allowed" {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestNotAllowedNamesTheRemedy(t *testing.T) {
	held := rules(t, "127.0.0.1:22", "*.internal:5432")
	held[0].Hold = time.Hour
	p := &Policy{Allow: held, Resolve: answers(t, map[string]string{"db.internal": "127.0.0.1"})}
	_, _, err := p.Judge(t.Context(), "10.0.0.1:80")
	want := `host: dialling target "10.0.0.1:80": not allowed: this host allows 127.0.0.1:22, *.internal:5432; ` +
		`to allow it, set under [host] in its config: ` +
		`allow = [{ to = "127.0.0.1:22", hold = "1h0m0s" }, "*.internal:5432", "10.0.0.1:80"]`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	_, _, err = p.Judge(t.Context(), "db.internal:5432")
	for _, part := range []string{"db.internal resolves to 127.0.0.1:5432", "does not cover this machine", `"127.0.0.1:5432"]`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: lacks %q", err, part)
		}
	}
	p.Allow = []Rule{}
	if _, _, err = p.Judge(t.Context(), "[::1]:80"); !strings.HasSuffix(err.Error(), `allows nothing; to allow it, set under [host] in its config: allow = ["[::1]:80"]`) {
		t.Error(err)
	}
	for range 20 {
		p.Allow = append(p.Allow, held[0])
	}
	if _, _, err = p.Judge(t.Context(), "[::1]:80"); !strings.Contains(err.Error(), "12 more; ") || len(err.Error()) > 1000 {
		t.Error(err)
	}
}

func TestJudgeErrors(t *testing.T) {
	boom := errors.New("boom")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		addrs  string
		dns    error
		own    error
		reason string
		is     error
	}{
		"resolver fails":    {t.Context(), "", boom, nil, "not_found", boom},
		"resolver is slow":  {t.Context(), "", &net.DNSError{IsTimeout: true}, nil, "timeout", nil},
		"deadline":          {late, "", context.DeadlineExceeded, nil, "timeout", context.DeadlineExceeded},
		"cancelled":         {ctx, "", boom, nil, "", context.Canceled},
		"no address":        {t.Context(), "", nil, nil, "not_found", nil},
		"own are not known": {t.Context(), "203.0.113.9", nil, boom, "not_allowed", boom},
	} {
		p := &Policy{
			Allow: rules(t, "db.internal:1"),
			Resolve: func(ctx context.Context, _ string) ([]netip.Addr, error) {
				var addrs []netip.Addr
				if c.addrs != "" {
					addrs = append(addrs, netip.MustParseAddr(c.addrs))
				}
				return addrs, c.dns
			},
			Own: func() ([]netip.Addr, error) { return nil, c.own },
		}
		_, _, err := p.Judge(c.ctx, "db.internal:1")
		if err == nil || reasonOf(err) != c.reason || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v with reason %q, want %q and %v", name, err, reasonOf(err), c.reason, c.is)
		}
	}
}

// TestRealEdges uses the system's resolver and interfaces where no network is needed.
func TestRealEdges(t *testing.T) {
	own, err := interfaceAddrs()
	if err != nil || !slices.Contains(own, loopback[0]) {
		t.Errorf("interfaceAddrs() = %v, %v; want 127.0.0.1 among them", own, err)
	}
	p := &Policy{Allow: rules(t, "*.invalid:1")} // RFC 6761 section 6.4: never exists
	if _, _, err := p.Judge(t.Context(), "x.invalid:1"); reasonOf(err) != "not_found" && reasonOf(err) != "timeout" {
		t.Errorf("x.invalid: %v", err)
	}
}

func TestParseRule(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:*":               "127.0.0.1:*",
		"localhost:22":              "127.0.0.1:22",
		"22":                        "127.0.0.1:22",
		":22":                       "127.0.0.1:22",
		"8000-8100":                 "127.0.0.1:8000-8100",
		"*":                         "127.0.0.1:*",
		"127.0.0.1:1-65535":         "127.0.0.1:*",
		"10.0.0.1:5-5":              "10.0.0.1:5",
		"[::1]:5432":                "[::1]:5432",
		"[::ffff:10.0.0.1]:1":       "10.0.0.1:1",
		"10.20.0.0/16:*":            "10.20.0.0/16:*",
		"[FD00::/8]:*":              "[fd00::/8]:*",
		"0.0.0.0/0:443":             "0.0.0.0/0:443",
		"*.Corp.Example.com.:443":   "*.corp.example.com:443",
		"db_1.internal:8000-8100":   "db_1.internal:8000-8100",
		"xn--bcher-kva.example:443": "xn--bcher-kva.example:443",
	} {
		r, err := ParseRule(in)
		if err != nil || r.String() != want {
			t.Errorf("ParseRule(%q) = %s, %v; want %s", in, r, err, want)
		}
	}
	for in, part := range map[string]string{
		"":                     "no port",
		"db.internal":          "no port",
		"10.0.0.1":             "no port",
		"*:443":                "0.0.0.0/0",
		"*.:443":               "1 to 253",
		"a.*.b:443":            `'*'`,
		"*.*.b:443":            `'*'`,
		"*.10.0.0.1:443":       "is an address",
		"*.localhost:443":      "is an address",
		"10.20.3.4/16:*":       "write 10.20.0.0/16",
		"10.20.0.0/33:*":       "no network",
		"10.20.0.0/016:*":      "no network",
		"[::ffff:0:0/96]:*":    "write it as IPv4",
		"fd00::/8:*":           "brackets",
		"[fe80::1%eth0]:22":    "zoned",
		"[fe80::1%eth0/64]:22": "no network",
		"0.0.0.0:80":           "write 127.0.0.1",
		"[::]:80":              "write 127.0.0.1",
		"127.1:22":             "four decimal numbers",
		"0177.0.0.1:22":        "four decimal numbers",
		"db.internal:0":        "1 to 65535",
		"db.internal:65536":    "1 to 65535",
		"db.internal:":         "1 to 65535",
		"db.internal:9-8":      "ends before it begins",
		"db.internal:1-":       "1 to 65535",
		"db.internal:1-2-3":    "1 to 65535",
		"bücher.example:443":   "xn--",
	} {
		if r, err := ParseRule(in); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("ParseRule(%q) = %s, %v; want an error with %q", in, r, err, part)
		}
	}
	var zero Rule
	if ruleFor([]Rule{zero}, "x", loopback[0], 1, nil) >= 0 {
		t.Error("the zero Rule allows something")
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"127.0.0.1:*", "[fd00::/8]:1-2", "*.a.b:443", "db.internal:5432", "22", "[::ffff:1.2.3.4]:1", "10.20.0.0/16:*", "0x7f.1:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again.String() != r.String() || again.name != r.name || !slices.Equal(again.nets, r.nets) {
			t.Errorf("%q → %+v → %+v, %v", s, r, again, err)
		}
		if (r.name == "") == (r.nets == nil) || r.lo == 0 || r.lo > r.hi {
			t.Errorf("%q: %+v", s, r)
		}
	})
}

// FuzzJudge: whatever the target and the resolver say, what is to be dialled is plain, has a rule, and leads to this
// machine only by a rule for the address; and the remedy in a refusal is one.
func FuzzJudge(f *testing.F) {
	for _, s := range []string{
		"127.0.0.1:22", "localhost:1", "x.corp.example.com:443", "[::ffff:127.0.0.1]:22", "0177.0.0.1:22", "2130706433:22",
		"[64:ff9b::7f00:1]:22", "[fe80::1%eth0]:22", "10.20.0.1:8000", "db.internal:5432", "22", "X.CORP.example.com.:443",
	} {
		f.Add(s, []byte{127, 0, 0, 1, 10, 20, 0, 1})
		f.Add(s, netip.MustParseAddr("::ffff:127.0.0.1").AsSlice())
		f.Add(s, netip.MustParseAddr("64:ff9b::7f00:1").AsSlice())
	}
	allow := rules(f, "127.0.0.1:22", "10.20.0.0/16:8000-8100", "*.corp.example.com:443", "db.internal:5432", "[2001:db8::/32]:*")
	own := netip.MustParseAddr(ownAddr)
	f.Fuzz(func(t *testing.T, target string, dns []byte) {
		p := &Policy{
			Allow: allow,
			Own:   func() ([]netip.Addr, error) { return []netip.Addr{own}, nil },
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				var addrs []netip.Addr
				for ; len(dns) >= 16; dns = dns[16:] {
					addrs = append(addrs, netip.AddrFrom16([16]byte(dns)))
				}
				for ; len(dns) >= 4; dns = dns[4:] {
					addrs = append(addrs, netip.AddrFrom4([4]byte(dns)))
				}
				return addrs, nil
			},
		}
		addrs, _, err := p.Judge(t.Context(), target)
		if (err == nil) != (len(addrs) > 0) || err != nil && reasonOf(err) == "" {
			t.Fatalf("%q: %v, %v", target, addrs, err)
		}
		for _, a := range addrs {
			checkAllowed(t, target, a, own)
		}
		checkRemedy(t, p, target, addrs, err)
	})
}

// checkAllowed judges a once more, in other words than the code under test.
func checkAllowed(t *testing.T, target string, a netip.AddrPort, own netip.Addr) {
	ip, port := a.Addr(), a.Port()
	if !ip.IsValid() || ip != ip.Unmap() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || port == 0 {
		t.Fatalf("%q may be dialled at %v", target, a)
	}
	byAddress := port == 22 && (ip.String() == "127.0.0.1" || ip.String() == "::1") ||
		port >= 8000 && port <= 8100 && netip.MustParsePrefix("10.20.0.0/16").Contains(ip) ||
		netip.MustParsePrefix("2001:db8::/32").Contains(ip)
	name := strings.TrimSuffix(strings.ToLower(target[:max(0, strings.LastIndex(target, ":"))]), ".")
	byName := port == 443 && strings.HasSuffix(name, ".corp.example.com") || port == 5432 && name == "db.internal"
	local := ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip == own
	if !byAddress && (!byName || local) {
		t.Fatalf("%q may be dialled at %v: by address %v, by name %v, local %v", target, a, byAddress, byName, local)
	}
}

// checkRemedy adds the rule that a refusal of a well-formed target proposes and asks again.
func checkRemedy(t *testing.T, p *Policy, target string, addrs []netip.AddrPort, err error) {
	var te *TargetError
	if !errors.As(err, &te) || te.Reason() != "not_allowed" || te.Err != nil {
		return
	}
	line := te.Error()[strings.LastIndex(te.Error(), ", \"")+3:]
	rule, err := ParseRule(strings.TrimSuffix(line, "\"]"))
	if err != nil {
		t.Fatalf("%q: the remedy of %q cannot be read: %v", target, te, err)
	}
	if rule.name != "" {
		return // what the name leads to is judged then
	}
	if ruleFor([]Rule{rule}, "", rule.nets[0].Addr(), rule.lo, nil) != 0 {
		t.Fatalf("%q: the remedy %s does not help", target, rule)
	}
}
