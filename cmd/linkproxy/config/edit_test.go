package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func newPeer() Peer {
	return Peer{Name: "devbox", ID: testID(1), Routes: []Route{{"lan", "192.168.1.20:8639"}, {"direct", "[fd00::1]:7000"}}}
}

const newBlock = `[[peer]]
name = "devbox"
id = "ID1"
routes = ["lan:192.168.1.20", "direct:[fd00::1]:7000"]
`

// ids puts real fingerprints in a text's place-holders.
func ids(s string) string {
	return strings.NewReplacer("ID1", testID(1).String(), "ID2", testID(2).String(), "ID3", testID(3).String()).Replace(s)
}

func TestAddPeerText(t *testing.T) {
	for name, tc := range map[string]struct{ old, want string }{
		"no file":            {"", header + "\n" + newBlock},
		"mark only":          {"\xef\xbb\xbf", "\xef\xbb\xbf" + header + "\n" + newBlock},
		"after a section":    {"[listen]\nwait = \"1s\"\n", "[listen]\nwait = \"1s\"\n\n" + newBlock},
		"no last newline":    {"[listen]\nwait = \"1s\" # x", "[listen]\nwait = \"1s\" # x\n\n" + newBlock},
		"an empty line left": {"# x\n\n", "# x\n\n" + newBlock},
		"Windows lines":      {"# x\r\n[listen]\r\n", "# x\r\n[listen]\r\n\r\n" + strings.ReplaceAll(newBlock, "\n", "\r\n")},
		"same routes": {
			"[[peer]]\nname = \"mine\"\nid = \"ID1\"\nroutes = [\"direct:[fd00::1]:7000\", \"lan:192.168.1.20:8639\"] # x\n",
			"[[peer]]\nname = \"mine\"\nid = \"ID1\"\nroutes = [\"direct:[fd00::1]:7000\", \"lan:192.168.1.20:8639\"] # x\n",
		},
		"one new route, one line": {
			"[[peer]]\nroutes = ['lan:192.168.1.20'] # x\nname = \"mine\"\nid = \"ID1\"\n",
			"[[peer]]\nroutes = [\"direct:[fd00::1]:7000\", 'lan:192.168.1.20'] # x\nname = \"mine\"\nid = \"ID1\"\n",
		},
		"two new routes, many lines": {
			"[[peer]]\nname = \"other\"\nid = \"ID2\"\nroutes = [\"lan:1.2.3.4\"]\n[[ peer ]] # mine\nname = \"mine\"\nid = \"ID1\"\nroutes = [ # all\n\t# old\n\t\"lan:10.0.0.1\", # home\n\t# end\n]\nreach = [\"*\"]\n[listen]\n",
			"[[peer]]\nname = \"other\"\nid = \"ID2\"\nroutes = [\"lan:1.2.3.4\"]\n[[ peer ]] # mine\nname = \"mine\"\nid = \"ID1\"\nroutes = [ # all\n\t# old\n\t\"lan:192.168.1.20\",\n\t\"direct:[fd00::1]:7000\",\n\t\"lan:10.0.0.1\", # home\n\t# end\n]\nreach = [\"*\"]\n[listen]\n",
		},
		"Windows lines and mark": {
			"\xef\xbb\xbf[[peer]]\r\nname = \"mine\"\r\nid = \"ID1\"\r\nroutes = [\r\n  \"lan:192.168.1.20\"\r\n]\r\n",
			"\xef\xbb\xbf[[peer]]\r\nname = \"mine\"\r\nid = \"ID1\"\r\nroutes = [\r\n  \"direct:[fd00::1]:7000\",\r\n  \"lan:192.168.1.20\"\r\n]\r\n",
		},
	} {
		got, err := addPeer("c.toml", []byte(ids(tc.old)), newPeer())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(ids(tc.want), string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAddPeerRefuses(t *testing.T) {
	inline := ids(`peer = [{ name = "x", id = "ID2", routes = ["lan:1.2.3.4"] }]`)
	if _, err := addPeer("c.toml", []byte(inline), newPeer()); !errors.Is(err, ErrByHand) || !strings.Contains(err.Error(), ids(newBlock)) {
		t.Errorf("inline peers: %v", err)
	}
	if _, err := addPeer("c.toml", []byte(strings.Replace(inline, testID(2).String(), testID(1).String(), 1)), newPeer()); !errors.Is(err, ErrByHand) {
		t.Errorf("new routes for an inline peer: %v", err)
	}
	if _, err := addPeer("c.toml", []byte(peerText("devbox", 2)), newPeer()); !errors.Is(err, ErrNameTaken) {
		t.Errorf("same name, other id: %v", err)
	}
	var all Errors
	if _, err := addPeer("c.toml", []byte("listen = 1\n"), newPeer()); !errors.As(err, &all) || all[0].Line != 1 {
		t.Errorf("a broken file: %v", err)
	}
	for what, change := range map[string]func(*Peer){
		"a name that writes keys": func(p *Peer) { p.Name = "x\"\nid = \"" },
		"no name":                 func(p *Peer) { p.Name = "" },
		"no routes":               func(p *Peer) { p.Routes = nil },
		"a route twice":           func(p *Peer) { p.Routes = append(p.Routes, p.Routes[0]) },
		"a relay":                 func(p *Peer) { p.Routes[0] = Route{"relay", "wss://r.example"} },
		"an unusual route":        func(p *Peer) { p.Routes[0] = Route{"lan", "1.2.3.4"} },
		"no id":                   func(p *Peer) { p.ID = testID(0) },
		"a reach that is none":    func(p *Peer) { p.Reach = []string{`x"]` + "\n[host]"} },
		"a standby that is none":  func(p *Peer) { p.Standby = "\"\n" },
	} {
		p := newPeer()
		change(&p)
		if out, err := addPeer("c.toml", nil, p); err == nil {
			t.Errorf("%s: accepted as\n%s", what, out)
		}
	}
}

func TestRemovePeerText(t *testing.T) {
	second := "[[peer]]\nname = \"b\"\nid = \"ID2\"\nroutes = [\n\"lan:1.2.3.4\", # r\n]\n"
	for name, tc := range map[string]struct{ old, remove, want string }{
		"the only one": {newBlock, "devbox", ""},
		"between others": {
			"# top\n[listen]\n\n# mine\n" + newBlock + "# tail\n\n[host]\n", "devbox",
			"# top\n[listen]\n\n# mine\n# tail\n\n[host]\n",
		},
		"first of two":      {newBlock + "\n" + second, "devbox", "\n" + second},
		"middle":            {"[listen]\n\n" + newBlock + "\n" + second, "devbox", "[listen]\n\n" + second},
		"last of two":       {newBlock + "\n" + second, "b", newBlock},
		"no newline at end": {newBlock + "\n" + strings.TrimSuffix(second, "\n"), "b", newBlock},
		"after a mark":      {"\xef\xbb\xbf" + newBlock + "# x", "devbox", "\xef\xbb\xbf# x"},
	} {
		got, err := removePeer("c.toml", []byte(ids(tc.old)), tc.remove)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(ids(tc.want), string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := removePeer("c.toml", []byte(ids(newBlock)), "x"); !errors.Is(err, ErrNoPeer) {
		t.Errorf("an unknown peer: %v", err)
	}
	used := ids("[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"devbox:1\"\n" + newBlock)
	if _, err := removePeer("c.toml", []byte(used), "devbox"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("a peer in use: %v", err)
	}
	inline := ids(`peer = [{ name = "x", id = "ID2", routes = ["lan:1.2.3.4"] }]`)
	if _, err := removePeer("c.toml", []byte(inline), "x"); !errors.Is(err, ErrByHand) {
		t.Errorf("an inline peer: %v", err)
	}
}

func TestAddAndRemovePeerOnDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deep", "linkproxy", "config.toml")
	if err := RemovePeer(file, "devbox"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing from nowhere: %v", err)
	}
	if err := AddPeer(file, newPeer()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != header+"\n"+ids(newBlock) {
		t.Errorf("got %q", got)
	}
	checkMode(t, file, 0o600)
	checkMode(t, filepath.Dir(file), 0o700|fs.ModeDir)
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := c.Peer("devbox"); !ok || p.ID != testID(1) {
		t.Errorf("got %+v", p)
	}
	if err := RemovePeer(file, "devbox"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != header {
		t.Errorf("got %q", got)
	}
	onlyThese(t, filepath.Dir(file), "config.toml", "config.toml.lock")
}

func checkMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode() != want {
		t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
	}
}

func onlyThese(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEditKeepsModeAndLinks(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "dotfiles.toml")
	writeFile(t, real, "# mine\n")
	if err := os.Chmod(real, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "config.toml")
	if err := os.Symlink("dotfiles.toml", link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := AddPeer(link, newPeer()); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != "dotfiles.toml" {
		t.Errorf("the link is now %q, %v", target, err)
	}
	if got, _ := os.ReadFile(real); string(got) != "# mine\n\n"+ids(newBlock) {
		t.Errorf("got %q", got)
	}
	checkMode(t, real, 0o640)

	// A link to a file that is not there yet makes that file.
	dangling := filepath.Join(dir, "dangling.toml")
	if err := os.Symlink("later.toml", dangling); err != nil {
		t.Fatal(err)
	}
	if err := AddPeer(dangling, newPeer()); err != nil {
		t.Fatal(err)
	}
	checkMode(t, filepath.Join(dir, "later.toml"), 0o600)

	ring := filepath.Join(dir, "ring.toml")
	if err := os.Symlink("ring.toml", ring); err != nil {
		t.Fatal(err)
	}
	if err := AddPeer(ring, newPeer()); err == nil {
		t.Error("a ring of links is followed")
	}
	if err := AddPeer(dir, newPeer()); err == nil {
		t.Error("a folder is edited")
	}
}

func TestFailedEditChangesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	for _, text := range []string{"listen = 1\n", "not toml", peerText("devbox", 2)} {
		writeFile(t, file, text)
		if err := AddPeer(file, newPeer()); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := os.ReadFile(file); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	onlyThese(t, filepath.Dir(file), "config.toml", "config.toml.lock")
}

func TestAddPeerAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	const n = 16
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			p := newPeer()
			p.Name, p.ID = "box"+string(rune('a'+i)), testID(byte(i+1))
			if err := AddPeer(file, p); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c, err := Load(file)
	if err != nil || len(c.Peers) != n {
		t.Errorf("%d peers, %v", len(c.Peers), err)
	}
}

// drawConfig writes a valid config as a person might: any order, spacing,
// quotes, comments and line ends.
func drawConfig(t *rapid.T) string {
	comment := func() string {
		return rapid.SampledFrom([]string{"", "", " # note", "\t#[[peer]]", " # \"]", "#=ü"}).Draw(t, "comment")
	}
	lines := func() string {
		return rapid.SampledFrom([]string{"", "\n", "# a line\n", "  # [[peer]]\n\n", "\n\n# routes = [\n"}).Draw(t, "lines")
	}
	space := func() string { return rapid.SampledFrom([]string{"", " ", "\t "}).Draw(t, "space") }
	kv := func(k, v string) string {
		k = rapid.SampledFrom([]string{k, `"` + k + `"`, "'" + k + "'"}).Draw(t, "key")
		return space() + k + space() + "=" + space() + v + comment() + "\n"
	}
	routes := func() string {
		all := []string{`"lan:10.0.0.1"`, `'tailnet:x.ts.net'`, `"direct:a.example:7"`, `"""lan:fd00::1"""`}
		all = rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(1, len(all)).Draw(t, "n")]
		if rapid.Bool().Draw(t, "one line") {
			return "[" + space() + strings.Join(all, ","+space()) + rapid.SampledFrom([]string{"", ",", " "}).Draw(t, "end") + "]"
		}
		var b strings.Builder
		b.WriteString("[" + comment() + "\n")
		for _, r := range all {
			b.WriteString(lines() + space() + r + space() + "," + comment() + "\n")
		}
		return b.String() + lines() + "]"
	}
	var sections []string
	for i := range rapid.IntRange(0, 3).Draw(t, "peers") {
		name := string(rune('a' + i))
		keys := []string{kv("name", `"`+name+`"`), kv("id", `"`+testID(byte(i+1)).String()+`"`), kv("routes", routes())}
		if rapid.Bool().Draw(t, "standby") {
			keys = append(keys, kv("standby", `"never"`))
		}
		if rapid.Bool().Draw(t, "reach") {
			keys = append(keys, kv("reach", "[ # x\n\"*.b.example\", '10.0.0.0/8' ]"))
		}
		s := "[[" + space() + "peer" + space() + "]]" + comment() + "\n"
		for _, k := range rapid.Permutation(keys).Draw(t, "keys") {
			s += k + lines()
		}
		sections = append(sections, s)
	}
	if rapid.Bool().Draw(t, "listen") {
		sections = append(sections, "[listen]"+comment()+"\n"+kv("wait", `"5s"`)+kv("users", `{ a = "#[[peer]]", "b" = '}' }`))
	}
	if rapid.Bool().Draw(t, "host") {
		sections = append(sections, "[host]\n"+kv("allow", "[ \"10.0.0.0/8:*\",\n{ to = 'a:1', hold = \"1s\" } ]"))
	}
	text := lines()
	for _, s := range rapid.Permutation(sections).Draw(t, "sections") {
		text += s + lines()
	}
	if rapid.Bool().Draw(t, "no last newline") {
		text = strings.TrimRight(text, "\n")
	}
	if rapid.Bool().Draw(t, "windows") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if rapid.Bool().Draw(t, "mark") {
		text = byteOrderMark + text
	}
	return text
}

// comments returns what stands after each # that begins a comment in drawn
// configs, with the line around it where the line is a comment only.
func comments(text []byte) (lines, notes []string) {
	for _, line := range bytes.SplitAfter(bytes.TrimPrefix(text, []byte(byteOrderMark)), []byte("\n")) {
		s := strings.TrimRight(string(line), "\r\n")
		if strings.HasPrefix(strings.TrimSpace(s), "#") {
			lines = append(lines, s)
		} else if i := strings.LastIndex(s, "#"); i >= 0 && !strings.Contains(s, "#[[peer]]\"") {
			notes = append(notes, s[i:])
		}
	}
	return lines, notes
}

// TestAddPeerProperty: what an edited file says is what it said and the peer,
// and every comment is there, in order, byte for byte.
func TestAddPeerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawConfig(t))
		want, err := Parse("c.toml", text)
		if err != nil {
			t.Fatalf("the drawn config is wrong: %v\n%s", err, text)
		}
		routes := []Route{{"lan", "10.0.0.1:8639"}, {"tailnet", "x.ts.net:8639"}, {"lan", "192.168.9.9:8639"}, {"direct", "b.example:1"}}
		p := Peer{
			Name: rapid.SampledFrom([]string{"a", "new"}).Draw(t, "name"), ID: testID(rapid.ByteRange(1, 4).Draw(t, "id")),
			Standby: rapid.SampledFrom([]Standby{StandbyAuto, StandbyAlways, StandbyNever}).Draw(t, "new standby"),
			Reach:   rapid.SampledFrom([][]string{nil, {"*"}, {"10.0.0.0/8", "*.c.example"}}).Draw(t, "new reach"),
			Routes:  rapid.Permutation(routes).Draw(t, "new routes")[:rapid.IntRange(1, 4).Draw(t, "count")],
		}
		out, err := addPeer("c.toml", text, p)
		if i := slices.IndexFunc(want.Peers, func(o Peer) bool { return o.ID == p.ID }); i >= 0 {
			merged := slices.DeleteFunc(slices.Clone(p.Routes), func(r Route) bool { return slices.Contains(want.Peers[i].Routes, r) })
			want.Peers[i].Routes = append(merged, want.Peers[i].Routes...)
		} else if _, taken := want.Peer(p.Name); taken {
			if !errors.Is(err, ErrNameTaken) {
				t.Fatalf("got %v", err)
			}
			return
		} else {
			want.Peers = append(want.Peers, p)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("c.toml", out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", diff, out)
		}
		checkComments(t, text, out)
		again, err := addPeer("c.toml", out, p)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("the same again changes it: %v\n%s", err, again)
		}
		back(t, text, out, p, want)
	})
}

func checkComments(t *rapid.T, old, out []byte) {
	lines, notes := comments(old)
	newLines, newNotes := comments(out)
	if !strings.Contains(string(old), "\n") && len(bytes.TrimPrefix(old, []byte(byteOrderMark))) == 0 {
		newLines = nil // the header of a new file
	}
	if !slices.Equal(lines, newLines) || !slices.Equal(notes, newNotes) {
		t.Fatalf("comments %q %q became %q %q", lines, notes, newLines, newNotes)
	}
}

// back removes an added peer and compares with the config before.
func back(t *rapid.T, text, out []byte, p Peer, with *Config) {
	if i := slices.IndexFunc(with.Peers, func(o Peer) bool { return o.Name == p.Name && o.ID == p.ID }); i != len(with.Peers)-1 {
		return
	}
	removed, err := removePeer("c.toml", out, p.Name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("c.toml", removed)
	if err != nil || len(got.Peers) != len(with.Peers)-1 {
		t.Fatalf("%v\n%s", err, removed)
	}
	if was, _ := Parse("c.toml", text); len(was.Peers) == len(got.Peers) && !cmp.Equal(was, got) {
		t.Fatal(cmp.Diff(was, got))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example))
	f.Add([]byte(ids(namesConfig)))
	f.Add([]byte("[[peer]]\n[[forward]]\n[host]\nallow=[{}]\n[listen.users]\n[relay.x]\n[[a.b]]\n[a.b.c]\n"))
	f.Add([]byte("peer=[{},1,[]]\nforward={}\nlisten=[]\na.b.c=1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("c.toml", data)
		if err == nil {
			if _, err := Parse("c.toml", data); err != nil || !Diff(c, c).Empty() {
				t.Fatalf("not stable: %v", err)
			}
			return
		}
		var all Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("no list: %v", err)
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, p := range all {
			if p.Line < 1 || p.Line > lines || p.Msg == "" {
				t.Fatalf("%+v in %d lines", p, lines)
			}
		}
	})
}

func FuzzAddPeer(f *testing.F) {
	f.Add([]byte(Example), "box", "10.1.1.1")
	f.Add([]byte(ids(newBlock)), "devbox", "fd00::2")
	f.Add([]byte(ids("[[peer]]\nname=\"x\"\nid=\"ID1\"\nroutes=[#\n'lan:1.2.3.4'#\n]#")), "y", "a.example")
	f.Fuzz(func(t *testing.T, data []byte, name, host string) {
		p := Peer{Name: name, ID: testID(1), Routes: []Route{{"lan", host + ":8639"}}}
		out, err := addPeer("c.toml", data, p)
		if err != nil {
			return
		}
		was, err := Parse("c.toml", data)
		if err != nil {
			t.Fatalf("a broken file is edited: %v", err)
		}
		got, err := Parse("c.toml", out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		i := slices.IndexFunc(got.Peers, func(o Peer) bool { return o.ID == p.ID })
		if i < 0 || !slices.Contains(got.Peers[i].Routes, p.Routes[0]) || len(got.Peers)-len(was.Peers) > 1 {
			t.Fatalf("%+v", got.Peers)
		}
		if c := Diff(was, got); !c.Listeners.Empty() || !c.Forwards.Empty() || c.HostAllow || c.HostListen || c.Users {
			t.Fatalf("more than peers changed: %+v", c)
		}
		// All of the old text is there, with one insertion.
		if !within(data, out) {
			t.Fatalf("%q became %q", data, out)
		}
	})
}

// within tells whether out is old with one piece put in somewhere.
func within(old, out []byte) bool {
	if len(out) < len(old) {
		return false
	}
	head := 0
	for head < len(old) && old[head] == out[head] {
		head++
	}
	return bytes.HasSuffix(out, old[head:])
}

// TestNoAgentPeers: they are edited and told apart as the others, by their names.
func TestNoAgentPeers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	for _, name := range []string{"nas", "tv"} {
		if err := AddPeer(file, Peer{Name: name, NoAgent: true, Routes: []Route{{"lan", "192.168.1.9:8639"}}}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(file)
	if err != nil || len(c.Peers) != 2 || !c.Peers[1].NoAgent || c.Peers[1].Name != "tv" {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := AddPeer(file, Peer{Name: "nas", ID: testID(1), Routes: []Route{{"lan", "192.168.1.9:8639"}}}); !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), "agent = false") {
		t.Errorf("a paired machine of that name: %v", err)
	}
	if err := RemovePeer(file, "nas"); err != nil {
		t.Fatal(err)
	}
	after, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	d := Diff(c, after).Peers
	if len(d.Removed) != 1 || d.Removed[0].Name != "nas" || len(d.Unchanged) != 1 || len(d.Added)+len(d.Changed) != 0 {
		t.Errorf("%+v", d)
	}
}
