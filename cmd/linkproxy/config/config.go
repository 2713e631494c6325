// Package config is linkproxy's one config file: reading it strictly with
// every mistake named by line (Parse, Load), editing it without touching what
// the user wrote (AddPeer, RemovePeer), telling what a new version changes
// (Diff), noticing one (Watch), and the rules for names in it (Names, ParseTo).
//
// It reads no environment: the caller says where the file is.
package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"linkproxy/state/identity"
)

const (
	// DefaultListen is where SOCKS5 and the HTTP proxy answer together when
	// [listen] names neither; 1080 is IANA's port for SOCKS.
	DefaultListen = "127.0.0.1:1080"

	// DefaultDirect and DefaultRefuse are the values of Config.Default.
	DefaultDirect = "direct"
	DefaultRefuse = "refuse"

	// maxFile bounds what is read into memory: hundreds of peers fit in, a
	// disk image given by mistake does not.
	maxFile = 1 << 20
)

// Config is a whole valid config file. Durations: zero means the documented
// default, negative means none (the file says "0s").
type Config struct {
	Default  string // DefaultDirect or DefaultRefuse: destinations that no peer covers
	Listen   Listen
	Forwards []Forward // one for each port, ranges spread out, in the file's order
	Host     Host
	Peers    []Peer // in the file's order
}

// Listen is [listen]: the endpoints of `linkproxy up` for proxy-aware apps.
// Addresses are "host:port" (host an IP literal, "localhost" for both loopback
// addresses, or empty for every address) or "unix:/path"; see SplitListen.
type Listen struct {
	SOCKS        string            // "" for none; may equal HTTP: both on one socket
	HTTP         string            // "" for none
	Users        map[string]string // user to password; with any, apps must log in
	PasswordFile string            // as written in the file; Load has added its users to Users
	AllowRemote  bool
	Wait         time.Duration // how long an app waits while no route works; default 60 s
}

// Forward is one fixed local port of a [[forward]].
type Forward struct {
	Listen      string // like Listen's addresses
	Peer        string // the name of one of the peers
	Target      string // host:port as the peer sees it
	Hold        time.Duration
	RefuseHTTP  bool
	AllowRemote bool
}

// Host is [host]: how `linkproxy host` serves this machine.
type Host struct {
	Listen string  // default ":8639"
	Allow  []Allow // nil: any port of its own loopback
}

// Allow is one rule of what clients may reach.
type Allow struct {
	To   string // as host.ParseRule reads it, in its one spelling
	Hold time.Duration
}

// Standby says when a second carrier is kept attached.
type Standby string

// Standby's values; the empty one means StandbyAuto.
const (
	StandbyAuto   Standby = "auto"
	StandbyAlways Standby = "always"
	StandbyNever  Standby = "never"
)

// Peer is one [[peer]].
type Peer struct {
	Name    string
	NoAgent bool                 // agent = false: no linkproxy runs there
	ID      identity.Fingerprint // zero with NoAgent
	Routes  []Route              // at least one, each once, in the file's order; with NoAgent their port means nothing
	Standby Standby              // never empty after Parse
	Reach   []string             // with NoAgent: other names of the machine itself
}

// Peer returns the peer of that name.
func (c *Config) Peer(name string) (Peer, bool) {
	for _, p := range c.Peers {
		if p.Name == name {
			return p, true
		}
	}
	return Peer{}, false
}

// Listener is one socket of [listen] and what is spoken on it.
type Listener struct {
	Address     string
	SOCKS, HTTP bool
}

// Listeners returns the sockets of [listen]: two, one that speaks both, or
// none.
func (c *Config) Listeners() []Listener {
	l := c.Listen
	var all []Listener
	if l.SOCKS != "" {
		all = append(all, Listener{Address: l.SOCKS, SOCKS: true, HTTP: l.HTTP == l.SOCKS})
	}
	if l.HTTP != "" && l.HTTP != l.SOCKS {
		all = append(all, Listener{Address: l.HTTP, HTTP: true})
	}
	return all
}

// Path returns where the config file is below the user's config folder
// (os.UserConfigDir).
func Path(userConfigDir string) string {
	return filepath.Join(userConfigDir, "linkproxy", "config.toml")
}

// Load reads a config file and the password file it names. Errors: Errors for
// what is wrong in either; fs.ErrNotExist and others from reading.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: reading %s: %w", path, err)
	}
	return load(path, data)
}

// ErrGone is a file that is empty or not there when it is to be read anew: a mistake, or the moment of an editor. It would be a
// valid config, and close everything.
var ErrGone = errors.New("the file is empty or not there: write it again, or restart linkproxy to run without it")

// Times of Reload: a program that writes a file is done with it within some milliseconds.
const (
	steady      = 100 * time.Millisecond
	steadyLimit = time.Second
)

// Reload is Load for a process that has a config in force: what it takes has stood in the file for 100 ms. It waits for that
// for at most a second. Errors: those of Load, and ErrGone in place of fs.ErrNotExist.
func Reload(ctx context.Context, path string) (*Config, error) {
	var last []byte
	for waited := time.Duration(0); ; waited += steady {
		data, err := readFile(path)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("config: reading %s: %w", path, err)
		case len(data) > 0 && (bytes.Equal(data, last) || waited == steadyLimit):
			return load(path, data)
		case waited == steadyLimit:
			return nil, fmt.Errorf("config: reading %s: %w", path, ErrGone)
		}
		last = data
		select {
		case <-time.After(steady):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func load(path string, data []byte) (*Config, error) {
	c, at, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	if c.Listen.PasswordFile == "" {
		return c, nil
	}
	file := c.Listen.PasswordFile
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(path), file)
	}
	if err := loadPasswords(c, file); err != nil {
		var listed Errors
		if errors.As(err, &listed) {
			return nil, err
		}
		const key = "listen.password_file"
		line := at.kid("listen").kid("password_file").line
		return nil, Errors{{path, line, key, "cannot be read: " + err.Error(), "name a readable file with one name:password a line"}}
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes, so not a config", maxFile)
	}
	return data, nil
}

// loadPasswords adds the users of a file with "name:password" lines; empty
// lines and lines that begin with # are skipped.
func loadPasswords(c *Config, file string) error {
	data, err := readFile(file)
	if err != nil {
		return err
	}
	d := &decoder{file: file}
	if c.Listen.Users == nil {
		c.Listen.Users = map[string]string{}
	}
	for i, line := range bytes.Split(bytes.TrimPrefix(data, []byte(byteOrderMark)), []byte("\n")) {
		s := strings.TrimSuffix(string(line), "\r")
		if strings.TrimSpace(s) == "" || strings.HasPrefix(s, "#") {
			continue
		}
		user, password, ok := strings.Cut(s, ":")
		if !ok {
			d.bad(i+1, "", "no colon in this line", "write name:password")
			continue
		}
		if err := checkUser(user, password); err != nil {
			d.badValue(i+1, "", err)
			continue
		}
		if _, twice := c.Listen.Users[user]; twice {
			d.bad(i+1, "", fmt.Sprintf("the user %q is given twice", user), "keep one of them")
			continue
		}
		c.Listen.Users[user] = password
	}
	if len(d.problems) == 0 && len(c.Listen.Users) == 0 {
		d.bad(0, "", "no users in this file", "write name:password, one a line")
	}
	if len(d.problems) > 0 {
		return d.problems
	}
	return nil
}

// checkUser holds user and password to what both proxies can carry: 1 to 255
// bytes (RFC 1929 section 2), and no colon in the name (RFC 7617 section 2).
func checkUser(user, password string) error {
	switch {
	case user == "" || len(user) > 255 || strings.ContainsAny(user, ":\r\n\x00"):
		return wrong("use 1 to 255 bytes without a colon", "%q cannot be the name of a user", user)
	case password == "" || len(password) > 255 || strings.ContainsAny(password, "\r\n\x00"):
		// The password itself is kept out of messages and logs.
		return wrong("use 1 to 255 bytes in one line", "the password of %q cannot be used", user)
	}
	return nil
}

// Parse reads a config file's content; file names it in errors. It reads no
// password file (Load does). The error is an Errors with everything that is
// wrong, except that a breach of TOML's own grammar hides what follows.
func Parse(file string, data []byte) (*Config, error) {
	c, _, err := parse(file, data)
	return c, err
}

// LoadPeers reads of a config file what a stand-alone connection needs: the peers whose own [[peer]] is right, and how long an
// app waits. Whatever else is wrong in the file comes back beside it, and does not matter here. It reads no password file. An
// error is a breach of TOML's own grammar, as an Errors, or one of reading (fs.ErrNotExist).
func LoadPeers(path string) (c *Config, wrong Errors, err error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("config: reading %s: %w", path, err)
	}
	vals, at, err := readTOML(path, data)
	if err != nil {
		return nil, nil, err
	}
	d := &decoder{file: path}
	all := d.config(&table{d: d, vals: vals, at: at})
	c = &Config{Default: all.Default, Listen: Listen{Wait: all.Listen.Wait}}
	for i, p := range all.Peers {
		if !d.flawed[i] {
			c.Peers = append(c.Peers, p)
		}
	}
	return c, d.problems.sorted(), nil
}

func parse(file string, data []byte) (*Config, *place, error) {
	vals, at, err := readTOML(file, data)
	if err != nil {
		return nil, nil, err
	}
	d := &decoder{file: file}
	c := d.config(&table{d: d, vals: vals, at: at})
	if len(d.problems) > 0 {
		return nil, nil, d.problems.sorted()
	}
	return c, at, nil
}
