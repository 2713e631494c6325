//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/net/websocket"
)

// The page makes browserRequests requests and holds a WebSocket open, over which it sends numbered messages, each when the
// one before has come back, until the server says that all cuts are made.
const (
	browserRequests = 100
	browserBody     = 128 << 10 // bytes of each answer
	browserEchoes   = 100       // at least so many messages
)

// browserPage checks all that comes by itself and tells the outcome by POST.
const browserPage = `<!doctype html><title>linkproxy</title><script>
const requests = %d, body = %d, echoes = %d, seed = %d;
async function one(i) {
  const r = await fetch('/' + (seed + i) + '/' + body, {cache: 'no-store'});
  const b = new Uint8Array(await r.arrayBuffer());
  let h = 2166136261;
  for (const x of b) h = Math.imul(h ^ x, 16777619) >>> 0;
  return [r.status, b.length, h];
}
async function fetches() {
  const got = new Array(requests);
  let next = 0;
  const worker = async () => { while (next < requests) { const i = next++; got[i] = await one(i); } };
  await Promise.all([worker(), worker(), worker()]);
  return got;
}
function socket() {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket('ws://' + location.host + '/echo');
    let n = 0, text = '';
    const say = () => { text = n + ':' + 'x'.repeat(n %% 300); ws.send(text); };
    ws.onopen = say;
    ws.onmessage = async m => {
      if (m.data !== text) return reject('echo ' + n + ' is ' + m.data);
      n++;
      if (n >= echoes && n %% 20 === 0 && (await (await fetch('/enough', {cache: 'no-store'})).text()) === 'yes') {
        ws.onclose = () => resolve(n);
        return ws.close();
      }
      say();
    };
    ws.onclose = e => reject('the WebSocket closed at message ' + n + ': ' + e.code + ' ' + e.reason);
  });
}
(async () => {
  let result = {};
  try {
    const [got, n] = await Promise.all([fetches(), socket()]);
    result = {got: got, echoes: n};
  } catch (e) { result = {error: String(e)}; }
  await fetch('/result', {method: 'POST', body: JSON.stringify(result)});
})();
</script>`

// browserResult is what the page tells.
type browserResult struct {
	Got    [][3]uint32 // status, length and FNV-1a of each answer
	Echoes int
	Error  string
}

func TestProgramChromium(t *testing.T) {
	t.Parallel()
	chromium := findChromium(t)
	var mu sync.Mutex
	var cuts *cutter // nil before the browser has asked for the page
	result := make(chan browserResult, 1)
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	const seed = 1 << 40
	web := newWeb(t, func(mux *http.ServeMux) {
		mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) {
			ask()
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, browserPage, browserRequests, browserBody, browserEchoes, seed)
		})
		mux.HandleFunc("GET /enough", func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if cuts != nil && closed(cuts.enough) {
				_, _ = io.WriteString(w, "yes") // the page asks again
			}
		})
		mux.HandleFunc("POST /result", func(_ http.ResponseWriter, r *http.Request) {
			var got browserResult
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				got.Error = "the page's result cannot be read: " + err.Error()
			}
			result <- got
		})
		mux.Handle("GET /echo", websocket.Server{Handler: func(c *websocket.Conn) {
			var m string
			for websocket.Message.Receive(c, &m) == nil && websocket.Message.Send(c, m) == nil {
			}
		}})
	})
	w := newWorld(t, "", false)
	w.setRate(1 << 20)
	w.start("chromium", chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--disable-features=HttpsUpgrades,HttpsFirstBalancedMode", "--remote-debugging-port=0",
		"--user-data-dir="+filepath.Join(w.dir, "profile"), "--proxy-server=socks5://"+w.socks,
		"http://devbox:"+portOf(web)+"/page")
	select {
	case <-asked:
	case <-w.ctx.Done():
		t.Fatal("Chromium did not ask for the page")
	}
	mu.Lock()
	cuts = w.cut(cutsWanted)
	mu.Unlock()
	<-cuts.enough
	w.setRate(0)
	var got browserResult
	select {
	case got = <-result:
	case <-w.ctx.Done():
		t.Fatal("Chromium told no result")
	}
	got.check(t, seed)
	t.Logf("%d requests and %d messages over the WebSocket", len(got.Got), got.Echoes)
	w.report(cuts)
}

// check compares what the browser got with what was sent.
func (r browserResult) check(t *testing.T, seed uint64) {
	t.Helper()
	if r.Error != "" {
		t.Errorf("the page failed: %s", r.Error)
	}
	if len(r.Got) != browserRequests {
		t.Errorf("%d requests were answered, want %d", len(r.Got), browserRequests)
	}
	if r.Echoes < browserEchoes {
		t.Errorf("%d messages came back, want %d at least", r.Echoes, browserEchoes)
	}
	for i, g := range r.Got {
		body := make([]byte, browserBody)
		if _, err := io.ReadFull(randomBytes(seed+uint64(i)), body); err != nil {
			t.Fatal(err)
		}
		h := uint32(2166136261)
		for _, b := range body {
			h = (h ^ uint32(b)) * 16777619
		}
		if want := [3]uint32{http.StatusOK, browserBody, h}; g != want {
			t.Errorf("request %d: status, length and hash are %v, want %v", i, g, want)
		}
	}
}

// findChromium finds the browser under one of its names.
func findChromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	lacks(t, "chromium is not installed")
	return ""
}
