package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"linkproxy/state/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testID is a fingerprint that differs for each n > 0.
func testID(n byte) identity.Fingerprint { return identity.Fingerprint{0: n} }

// peerText is a valid [[peer]] for tests about other things.
func peerText(name string, n byte) string {
	return "[[peer]]\nname = \"" + name + "\"\nid = \"" + testID(n).String() + "\"\nroutes = [\"lan:192.168.1.20\"]\n"
}

func parseString(t testing.TB, s string) *Config {
	t.Helper()
	c, err := Parse("c.toml", []byte(s))
	if err != nil {
		t.Fatalf("Parse: %v\n%s", err, s)
	}
	return c
}

func TestExampleParses(t *testing.T) {
	c := parseString(t, Example)
	id, err := identity.ParseFingerprint("ecr0-gwfm-9gb8-wz4m-kqhc-em76-1gp9-qe7z-ac01-fhd2-cwhm-x75m-ve76-0bt1")
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Default:  "direct",
		Listen:   Listen{SOCKS: "127.0.0.1:1080", HTTP: "127.0.0.1:8118", Wait: time.Minute},
		Forwards: []Forward{{Listen: "127.0.0.1:5432", Peer: "devbox", Target: "127.0.0.1:5432", Hold: time.Hour, RefuseHTTP: true}},
		Host: Host{Listen: ":8639", Allow: []Allow{
			{To: "127.0.0.1:5432", Hold: time.Hour}, {To: "127.0.0.1:*"}, {To: "10.20.0.0/16:443"},
		}},
		Peers: []Peer{{
			Name: "devbox", ID: id, Standby: "auto",
			Routes: []Route{
				{"lan", "192.168.1.20:8639"},
				{"tailnet", "devbox.tail1234.ts.net:8639"},
				{"direct", "devbox.example.com:7000"},
			},
			Reach: []string{"10.20.0.0/16", "*.corp.example.com"},
		}, {
			Name: "nas", NoAgent: true, Standby: "auto",
			Routes: []Route{{"lan", "192.168.1.9:8639"}, {"tailnet", "nas.tail1234.ts.net:8639"}},
			Reach:  []string{"nas.example.com"},
		}},
	}
	for _, port := range []string{"3000", "3001", "3002", "3003", "3004", "3005", "3006", "3007", "3008", "3009", "3010"} {
		want.Forwards = append(want.Forwards, Forward{Listen: "127.0.0.1:" + port, Peer: "devbox", Target: "db.internal:" + port})
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

// TestExampleNamesEveryKey uncomments the keys that the example only mentions.
func TestExampleNamesEveryKey(t *testing.T) {
	all := Example
	for _, key := range []string{"users", "password_file", "allow_remote"} {
		if !strings.Contains(all, "\n# "+key) {
			t.Fatalf("%s is not in the example", key)
		}
		all = strings.Replace(all, "\n# "+key, "\n"+key, 1)
	}
	c := parseString(t, all)
	if !c.Listen.AllowRemote || c.Listen.PasswordFile != "passwords" || c.Listen.Users["alice"] != "a password" {
		t.Errorf("got %+v", c.Listen)
	}
	for _, key := range []string{
		"default", "socks", "http", "users", "password_file", "wait", "allow_remote", "to", "refuse_http", "hold", "allow", "name", "id", "routes", "standby", "reach",
	} {
		if homesOf(key) == nil {
			t.Errorf("homesOf(%q) knows no place", key)
		}
		if !strings.Contains(all, key) {
			t.Errorf("%s is not in the example", key)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, text := range []string{"", "[listen]\n", "\xef\xbb\xbf[listen]\r\n"} {
		c := parseString(t, text)
		want := &Config{Default: "direct", Listen: Listen{SOCKS: "127.0.0.1:1080", HTTP: "127.0.0.1:1080"}, Host: Host{Listen: ":8639"}}
		if diff := cmp.Diff(want, c); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestListeners(t *testing.T) {
	for _, tc := range []struct {
		listen string
		want   []Listener
	}{
		{``, []Listener{{"127.0.0.1:1080", true, true}}},
		{`socks = "127.0.0.1:9"`, []Listener{{"127.0.0.1:9", true, false}}},
		{`http = "[::1]:9"`, []Listener{{"[::1]:9", false, true}}},
		{`socks = "LOCALHOST:9"` + "\n" + `http = "localhost:9"`, []Listener{{"localhost:9", true, true}}},
		{`socks = "localhost:9"` + "\n" + `http = "localhost:10"`, []Listener{{"localhost:9", true, false}, {"localhost:10", false, true}}},
		{`socks = "off"`, nil},
		{`socks = "127.0.0.1:0"` + "\n" + `http = "127.0.0.2:0"`, []Listener{{"127.0.0.1:0", true, false}, {"127.0.0.2:0", false, true}}},
		{`socks = "*:9"` + "\nallow_remote = true", []Listener{{":9", true, false}}},
		{`socks = "[::ffff:127.0.0.1]:9"`, []Listener{{"127.0.0.1:9", true, false}}},
		{`socks = "0.0.0.0:9"` + "\n" + `users = { a = "b" }`, []Listener{{"0.0.0.0:9", true, false}}},
		{`socks = "0.0.0.0:9"` + "\n" + `password_file = "p"`, []Listener{{"0.0.0.0:9", true, false}}},
	} {
		c := parseString(t, "[listen]\n"+tc.listen+"\n")
		if diff := cmp.Diff(tc.want, c.Listeners()); diff != "" {
			t.Errorf("%q: %s", tc.listen, diff)
		}
	}
}

func TestZeroDurationsMeanNone(t *testing.T) {
	c := parseString(t, "[listen]\nwait = \"0s\"\n[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"devbox:1\"\nhold = \"0s\"\n"+peerText("devbox", 1))
	if c.Listen.Wait >= 0 || c.Forwards[0].Hold >= 0 {
		t.Errorf("wait %v, hold %v", c.Listen.Wait, c.Forwards[0].Hold)
	}
}

func TestSplitListen(t *testing.T) {
	for _, tc := range [][3]string{{"unix:/a b/c", "unix", "/a b/c"}, {"127.0.0.1:1", "tcp", "127.0.0.1:1"}} {
		if n, a := SplitListen(tc[0]); n != tc[1] || a != tc[2] {
			t.Errorf("SplitListen(%q) = %q, %q", tc[0], n, a)
		}
	}
}

func TestPath(t *testing.T) {
	if got, want := Path("x"), filepath.Join("x", "linkproxy", "config.toml"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	if _, err := Load(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	writeFile(t, file, "[listen]\nusers = { a = \"b\" }\npassword_file = \"pw\"\n")
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file+":3: listen.password_file: cannot be read") {
		t.Errorf("a missing password file gives %v", err)
	}
	writeFile(t, filepath.Join(dir, "pw"), "# mine\r\ncarol:with:colon\r\n\r\ndave: x\n")
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "b", "carol": "with:colon", "dave": " x"}
	if diff := cmp.Diff(want, c.Listen.Users); diff != "" {
		t.Error(diff)
	}
	writeFile(t, filepath.Join(dir, "pw"), "nocolon\n:x\na:again\nbob:\n")
	_, err = Load(file)
	var all Errors
	if !errors.As(err, &all) || len(all) != 4 {
		t.Fatalf("got %v", err)
	}
	for i, p := range all {
		if p.Line != i+1 || p.File != filepath.Join(dir, "pw") {
			t.Errorf("problem %d at %s:%d", i, p.File, p.Line)
		}
	}
	writeFile(t, filepath.Join(dir, "pw"), "# nobody\n")
	if _, err := Load(file); err != nil {
		t.Errorf("users in the config are enough, got %v", err)
	}
	writeFile(t, file, "[listen]\npassword_file = \"pw\"\nsocks = \"0.0.0.0:9\"\n")
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "no users in this file") {
		t.Errorf("an empty password file opens the endpoint: %v", err)
	}
	writeFile(t, file, strings.Repeat("#", maxFile+1))
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file gives %v", err)
	}
}

// TestLoadPeers: peers with a mistake of their own are left out, mistakes elsewhere come beside the rest, and grammar is an error.
func TestLoadPeers(t *testing.T) {
	const peer = "\n[[peer]]\nname = %q\nid = %q\nroutes = [%q]\n"
	one, two := testID(1), testID(2)
	good := fmt.Sprintf(peer, "good", one, "lan:10.0.0.1")
	for name, c := range map[string]struct {
		text  string
		peers string
		wrong int
	}{
		"all right":             {good, "good", 0},
		"another table":         {"[listen]\nwait = \"5s\"\nsokcs = 1\npassword_file = \"missing\"\n" + good, "good", 1},
		"a forward":             {good + "[[forward]]\nlisten = \"x\"\nto = \"nobody:1\"\n", "good", 2},
		"the peer itself":       {strings.Replace(good, "lan:", "wlan:", 1), "", 1},
		"an unknown key in it":  {good + "frob = 1\n", "", 1},
		"another peer":          {good + fmt.Sprintf(peer, "other", two, "10.0.0.2"), "good", 1},
		"two of one name":       {good + fmt.Sprintf(peer, "good", two, "lan:10.0.0.2"), "", 1},
		"two of one id":         {fmt.Sprintf(peer, "third", two, "lan:10.0.0.3") + good + fmt.Sprintf(peer, "other", one, "lan:10.0.0.2"), "third", 1},
		"not a table at all":    {"forward = 1\n" + good, "good", 1},
		"of a later version":    {"[relay_server]\n" + good, "good", 1},
		"nothing in it":         {"", "", 0},
		"a peer without a name": {good + "[[peer]]\n", "good", 3},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "c.toml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, wrong, err := LoadPeers(file)
			if err != nil {
				t.Fatal(err)
			}
			var peers []string
			for _, p := range cfg.Peers {
				peers = append(peers, p.Name)
			}
			if strings.Join(peers, " ") != c.peers || len(wrong) != c.wrong {
				t.Errorf("peers %q, wrong: %v", peers, wrong)
			}
			if name == "another table" && cfg.Listen.Wait != 5*time.Second {
				t.Errorf("apps wait %v", cfg.Listen.Wait)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "c.toml")
	if _, _, err := LoadPeers(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, []byte("[[peer\n"+good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadPeers(file); !errors.As(err, new(Errors)) {
		t.Errorf("bad grammar: %v", err)
	}
}
