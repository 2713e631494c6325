package identity

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func is(secret []byte) func([]byte) bool {
	return func(s []byte) bool { return bytes.Equal(s, secret) }
}

func wrong([]byte) bool { return false }

func TestInviteIsUsedOnce(t *testing.T) {
	dir := filepath.Join(tempDir(t), "state")
	cli, host := OpenInvites(dir, key("host")), OpenInvites(dir, key("host"))
	if host.Open(noon) {
		t.Error("open before any was made")
	}
	_, err := host.Attempt(noon, func([]byte) bool { t.Error("verify was asked"); return true })
	wantErr(t, err, ErrNoInvite, "linkproxy host invite")

	addresses := []string{"192.168.1.20:7143"}
	i := must(cli.Create(noon.Add(300*time.Millisecond), "dev\x00box", addresses))
	addresses[0] = "changed by the caller"
	want := Invite{Name: "devbox", Fingerprint: key("host"), Addresses: []string{"192.168.1.20:7143"}, Secret: i.Secret, Expires: noon.Add(InviteLife)}
	if diff := cmp.Diff(want, i); diff != "" || len(i.Secret) != SecretSize {
		t.Error(len(i.Secret), diff)
	}
	if !host.Open(noon) || !cli.Open(noon) {
		t.Error("not open")
	}
	name, err := host.Attempt(noon, is(i.Secret))
	if err != nil || name != "devbox" {
		t.Fatalf("%q, %v", name, err)
	}
	for _, v := range []*Invites{host, cli, OpenInvites(dir, key("host"))} {
		if v.Open(noon) {
			t.Error("open after its use")
		}
		_, err = v.Attempt(noon, is(i.Secret))
		wantErr(t, err, ErrNoInvite)
	}
	if data := must(os.ReadFile(filepath.Join(dir, "invites.json"))); bytes.Contains(data, []byte(`"expires"`)) {
		t.Errorf("a used invite is still one: %s", data)
	}
	if a, b := must(cli.Create(noon, "", nil)), must(cli.Create(noon, "", nil)); bytes.Equal(a.Secret, b.Secret) {
		t.Error("two invites, one secret")
	}
}

func TestInviteLife(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		open  bool
	}{
		{0, true},
		{InviteLife - time.Nanosecond, true},
		{InviteLife, false},
		{InviteLife + time.Hour, false},
		{-clockSlack, true},                    // a corrected clock
		{-clockSlack - time.Nanosecond, false}, // a clock set back would make it live longer
		{-24 * time.Hour, false},
	} {
		v := OpenInvites(tempDir(t), key("host"))
		i := must(v.Create(noon, "x", nil))
		at := noon.Add(c.after)
		if got := v.Open(at); got != c.open {
			t.Errorf("Open after %v: %v", c.after, got)
		}
		_, err := v.Attempt(at, is(i.Secret))
		if c.open && err != nil {
			t.Errorf("Attempt after %v: %v", c.after, err)
		}
		if !c.open {
			wantErr(t, err, ErrNoInvite)
		}
	}
}

func TestInviteGuesses(t *testing.T) {
	v := OpenInvites(tempDir(t), key("host"))
	first := must(v.Create(noon, "first", nil))
	for n := 1; n <= 3; n++ {
		_, err := v.Attempt(noon, wrong)
		wantErr(t, err, ErrWrongSecret, "against 1 open")
	}
	second := must(v.Create(noon, "second", nil))
	_, err := v.Attempt(noon, wrong)
	wantErr(t, err, ErrWrongSecret, "against 2 open")
	v = OpenInvites(v.dir, key("host")) // counts are on disk
	_, err = v.Attempt(noon, wrong)
	wantErr(t, err, ErrWrongSecret)

	// The fifth ended the first; the second has seen two. Whoever still has the first is no guesser.
	for range 2 * MaxGuesses {
		_, err = v.Attempt(noon, is(first.Secret))
		wantErr(t, err, ErrNoInvite, "this one was used, is too old, or was ended")
	}
	if !v.Open(noon) {
		t.Error("the second is not open")
	}
	_, err = v.Attempt(noon, wrong)
	wantErr(t, err, ErrWrongSecret)
	_, err = v.Attempt(noon, wrong)
	wantErr(t, err, ErrWrongSecret)
	_, err = v.Attempt(noon, wrong)
	wantErr(t, err, ErrWrongSecret)
	if v.Open(noon) {
		t.Error("open after five guesses")
	}
	_, err = v.Attempt(noon, is(second.Secret))
	wantErr(t, err, ErrNoInvite)
	if third := must(v.Create(noon, "third", nil)); must(v.Attempt(noon, is(third.Secret))) != "third" {
		t.Error("a new invite after guesses fails")
	}
}

// An old code tried again, however it ended, counts against no newer invite; how many are remembered is bounded.
func TestOldInviteIsNoGuess(t *testing.T) {
	v := OpenInvites(tempDir(t), key("host"))
	used := must(v.Create(noon, "used", nil))
	must(v.Attempt(noon, is(used.Secret)))
	cancelled := must(v.Create(noon, "cancelled", nil))
	must(v.Cancel(noon))
	late := must(v.Create(noon, "late", nil)) // still in the list when the next one is made: nothing has swept it
	newer := noon.Add(InviteLife - time.Second)
	fresh := must(v.Create(newer, "fresh", nil))
	later := newer.Add(2 * time.Second)
	for range MaxGuesses {
		for _, old := range []Invite{used, cancelled, late} {
			_, err := OpenInvites(v.dir, key("host")).Attempt(later, is(old.Secret)) // remembered on disk
			wantErr(t, err, ErrNoInvite)
		}
	}
	if name, err := v.Attempt(later, is(fresh.Secret)); name != "fresh" || err != nil {
		t.Errorf("old codes have ended a new invite: %q, %v", name, err)
	}

	for range maxEnded {
		must(v.Attempt(noon, is(must(v.Create(noon, "x", nil)).Secret)))
	}
	must(v.Create(noon, "fresh", nil))
	_, err := v.Attempt(noon, is(used.Secret))
	wantErr(t, err, ErrWrongSecret)
	if book := must(v.read()); len(book.ended) != maxEnded {
		t.Errorf("%d ended invites are remembered", len(book.ended))
	}
}

// A right secret uses up its own invite and counts against no other.
func TestInvitesSideBySide(t *testing.T) {
	v := OpenInvites(tempDir(t), key("host"))
	var all []Invite
	for n := range MaxOpenInvites {
		all = append(all, must(v.Create(noon, fmt.Sprint("n", n), nil)))
	}
	_, err := v.Create(noon, "one more", nil)
	wantErr(t, err, ErrTooManyInvites, "16", "cancel")
	slices.Reverse(all)
	for _, i := range all {
		if name, err := v.Attempt(noon, is(i.Secret)); err != nil || name != i.Name {
			t.Errorf("%q, %v, want %q", name, err, i.Name)
		}
	}
	for range MaxOpenInvites {
		must(v.Create(noon, "again", nil))
	}
	must(v.Create(noon.Add(InviteLife), "when the others are over", nil))

	if n, err := v.Cancel(noon.Add(InviteLife)); n != 1 || err != nil {
		t.Errorf("Cancel = %d, %v", n, err)
	}
	if n, err := v.Cancel(noon); n != 0 || err != nil || v.Open(noon.Add(InviteLife)) {
		t.Errorf("after Cancel: %d, %v", n, err)
	}
}

func TestCreateInviteErrors(t *testing.T) {
	v := OpenInvites(tempDir(t), key("host"))
	for says, addresses := range map[string][]string{
		"9 addresses": strings.Split(strings.Repeat("a ", 9)[:17], " "),
		"white space": {"a b"},
		"0 bytes":     {""},
		"256 bytes":   {strings.Repeat("a", 256)},
		"leave some":  slices.Repeat([]string{strings.Repeat("a", 255)}, 8),
	} {
		_, err := v.Create(noon, "x", addresses)
		wantErr(t, err, ErrFormat, "creating invite", says)
	}
	_, err := OpenInvites(tempDir(t), Fingerprint{}).Create(noon, "x", nil)
	wantErr(t, err, ErrFormat, "zero")
	if v.Open(noon) {
		t.Error("a refused invite is open")
	}
}

// What is not on disk has not happened: no pairing is reported, and no guess forgotten afterwards.
func TestInvitesCannotWrite(t *testing.T) {
	v := OpenInvites(tempDir(t), key("host"))
	i := must(v.Create(noon, "x", nil))
	free := jam(t, v.path)
	if name, err := v.Attempt(noon, is(i.Secret)); err == nil || name != "" {
		t.Errorf("paired %q without a record", name)
	}
	if _, err := v.Attempt(noon, wrong); err == nil || errors.Is(err, ErrWrongSecret) {
		t.Errorf("error %v", err)
	}
	if _, err := v.Create(noon, "y", nil); err == nil {
		t.Error("an invite was handed out that the host does not know")
	}
	free()
	if name, err := v.Attempt(noon, is(i.Secret)); err != nil || name != "x" {
		t.Errorf("%q, %v", name, err)
	}
}

func TestInvitesCorrupt(t *testing.T) {
	for content, class := range map[string]error{
		"":               ErrCorrupt,
		"{":              ErrCorrupt,
		`{"invites":[]}`: ErrCorrupt,
		`{"version":1,"invites":[{"secret":"AAAA","expires":"2026-05-04T12:05:00Z"}]}`:                          ErrCorrupt,
		`{"version":1,"invites":[{"secret":"AAAAAAAAAAAAAAAAAAAAAA==","guesses":-9}]}`:                          ErrCorrupt,
		`{"version":1,"invites":[{"secret":"AAAAAAAAAAAAAAAAAAAAAA==","expires":"9999-12-31T23:59:59-01:00"}]}`: ErrCorrupt,
		`{"version":1,"invites":[],"ended":["AAAA"]}`:                                                           ErrCorrupt,
		`{"version":2}`: ErrVersion,
	} {
		v := OpenInvites(tempDir(t), key("host"))
		put(t, v.path, content, 0o600)
		if v.Open(noon) {
			t.Errorf("%s is open", content)
		}
		_, err := v.Create(noon, "x", nil)
		wantErr(t, err, class, v.path)
		_, err = v.Attempt(noon, func([]byte) bool { return true })
		wantErr(t, err, class, v.path)
		if got := string(must(os.ReadFile(v.path))); got != content {
			t.Errorf("%s was replaced by %s", content, got)
		}
	}
}

func TestInvitesMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		lacks(t, "Windows has no modes")
	}
	v := OpenInvites(tempDir(t), key("host"))
	i := must(v.Create(noon, "x", nil))
	if mode := must(os.Stat(v.path)).Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o", mode)
	}
	if err := os.Chmod(v.path, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := v.Attempt(noon, is(i.Secret))
	wantErr(t, err, ErrPermissions, fmt.Sprintf("chmod 600 %q", v.path))
}

// One process writes invites, others use them: each secret pairs once, however many try at once.
func TestInvitesBetweenProcesses(t *testing.T) {
	dir := tempDir(t)
	host := OpenInvites(dir, key("host"))
	made := children(t, []string{"invite", dir}, []string{"invite", dir})
	if !host.Open(time.Now()) {
		t.Fatal("the host does not see what another process made")
	}
	for _, line := range made {
		i := must(ParseInvite(line))
		task := []string{"attempt", dir, fmt.Sprintf("%x", i.Secret)}
		out := children(t, task, task, task)
		slices.Sort(out)
		if paired := slices.DeleteFunc(slices.Clone(out), func(s string) bool { return s != "paired devbox" }); len(paired) != 1 {
			t.Errorf("three at once: %q", out)
		}
	}
	if host.Open(time.Now()) {
		t.Error("open after both were used")
	}
}

func TestInvitesRace(t *testing.T) {
	v := OpenInvites(tempDir(t), key("host"))
	i := must(v.Create(noon, "x", nil))
	var paired, guesses atomic.Int32
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			v.Open(noon)
			verify := is(i.Secret)
			if n%3 == 0 {
				verify = wrong
			}
			_, err := v.Attempt(noon, verify)
			switch {
			case err == nil:
				paired.Add(1)
			case errors.Is(err, ErrWrongSecret):
				guesses.Add(1)
			case !errors.Is(err, ErrNoInvite):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if paired.Load() != 1 || guesses.Load() > 4 {
		t.Errorf("paired %d times, %d guesses", paired.Load(), guesses.Load())
	}

	// However many guess at once, five are judged.
	y := must(v.Create(noon, "y", nil))
	var asked atomic.Int32
	for range 12 {
		wg.Go(func() {
			_, _ = v.Attempt(noon, func(secret []byte) bool {
				if bytes.Equal(secret, y.Secret) {
					asked.Add(1)
				}
				return false
			})
		})
	}
	wg.Wait()
	if asked.Load() != MaxGuesses {
		t.Errorf("%d guesses were judged", asked.Load())
	}
}

// Any order of creating, guessing, using and waiting against a plain model.
func TestInvitesModel(t *testing.T) {
	type state struct {
		secret  []byte
		expires time.Time
		guesses int
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir := must(os.MkdirTemp(t.TempDir(), "")) // one per run of the property
		views := []*Invites{OpenInvites(dir, key("host")), OpenInvites(dir, key("host"))}
		model, now := map[string]state{}, noon
		var all []Invite
		for n := range rapid.IntRange(1, 14).Draw(rt, "steps") {
			v := views[rapid.IntRange(0, 1).Draw(rt, "view")]
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				i := must(v.Create(now, fmt.Sprint(n), nil))
				all = append(all, i)
				model[i.Name] = state{i.Secret, now.Add(InviteLife), 0}
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(rt, "seconds")) * time.Second)
			case 2, 3:
				guess := Invite{Secret: []byte("none")}
				if len(all) > 0 && rapid.Bool().Draw(rt, "right") {
					guess = rapid.SampledFrom(all).Draw(rt, "invite")
				}
				name, err := v.Attempt(now, is(guess.Secret))
				_, there := model[guess.Name]
				switch {
				case there && (err != nil || name != guess.Name):
					rt.Fatalf("%q, %v", name, err)
				case there:
					delete(model, guess.Name)
				case len(model) == 0 || guess.Name != "": // nothing to guess at, or an old code
					if !errors.Is(err, ErrNoInvite) {
						rt.Fatalf("with %d open: %v", len(model), err)
					}
				case !errors.Is(err, ErrWrongSecret):
					rt.Fatalf("with %d open: %v", len(model), err)
				default:
					for k, s := range model {
						s.guesses++
						model[k] = s
					}
				}
			}
			for k, s := range model {
				if s.guesses >= 5 || !now.Before(s.expires) {
					delete(model, k)
				}
			}
			for _, v := range views {
				if v.Open(now) != (len(model) > 0) {
					rt.Fatalf("Open is %v, model has %d", v.Open(now), len(model))
				}
			}
		}
	})
}

func FuzzInvitesFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"invites":[{"name":"x","secret":"AAAAAAAAAAAAAAAAAAAAAA==","expires":"2026-05-04T12:05:00Z","guesses":2}]}`))
	f.Add([]byte(`{"version":1,"invites":null,"ended":["AAAAAAAAAAAAAAAAAAAAAA=="]}`))
	f.Add([]byte(`{"version":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		book, err := parseInvites(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("an error without a class: %v", err)
			}
			return
		}
		again, err := book.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseInvites(again)
		same := cmpopts.EquateEmpty()
		if err != nil || !cmp.Equal(book.open, back.open, same) || !cmp.Equal(book.ended, back.ended, same) {
			t.Fatalf("%+v became %+v, %v", book, back, err)
		}
	})
}
