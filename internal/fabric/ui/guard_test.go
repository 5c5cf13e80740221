package ui

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ndklab/ndklab/internal/fabric/web"
)

const (
	testSecret = "0123456789abcdefghijklmnopqrstuv"
	testHost   = "127.0.0.1:8000"
	testOrigin = "http://" + testHost
)

// pageFiles are those of a page.
var pageFiles = fstest.MapFS{
	"index.html":         {Data: []byte("<!doctype html>the page")},
	"assets/page.js":     {Data: []byte("the script")},
	"assets/sub/page.js": {Data: []byte("another")},
	"assets/.secret":     {Data: []byte("no type")},
	"other.js":           {Data: []byte("beside")},
}

// testServer is a server of a report, at testHost.
func testServer() *server {
	h := newHub(nil)
	h.end("over")
	return &server{guard: newGuard(testSecret, testHost, "8000"), files: pageFiles, hubs: []*hub{h}}
}

// Requests are answered if they have the secret and come from the page, or from nobody's page. Others learn nothing.
func TestAdmission(t *testing.T) {
	const right, wrong = "/" + testSecret + "/", "/0123456789abcdefghijklmnopqrstuV/"
	type headers map[string]string
	for _, c := range []struct {
		what, method, path, host string // host "": testHost
		headers                  headers
		status                   int
	}{
		{"the page", "GET", right, "", nil, 200},
		{"its head", "HEAD", right, "", nil, 200},
		{"a file", "GET", right + "assets/page.js", "", nil, 200},
		{"a file in a folder", "GET", right + "assets/sub/page.js", "", nil, 200},
		{"the stream", "GET", right + "api/stream", "", nil, 200},
		{"the stream, by the page", "GET", right + "api/stream", "", headers{"Origin": testOrigin, "Sec-Fetch-Site": "same-origin"}, 200},
		{"localhost", "GET", right, "localhost:8000", nil, 200},
		{"Localhost", "GET", right, "LocalHost:8000", nil, 200},
		{"IPv6", "GET", right, "[::1]:8000", nil, 200},
		{"led there from elsewhere", "GET", right, "", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"an address that was typed", "GET", right, "", headers{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},

		{"no secret", "GET", "/", "", nil, 404},
		{"no secret", "GET", "/api/stream", "", nil, 404},
		{"an empty secret", "GET", "//", "", nil, 404},
		{"a wrong secret", "GET", wrong, "", nil, 404},
		{"a wrong secret", "GET", wrong + "api/stream", "", nil, 404},
		{"a part of the secret", "GET", "/" + testSecret[:31] + "/", "", nil, 404},
		{"more than the secret", "GET", "/" + testSecret + "x/", "", nil, 404},
		{"no slash", "GET", "/" + testSecret, "", nil, 404},
		{"an unknown path", "GET", right + "nothing", "", nil, 404},
		{"a lab's path without a lab", "GET", right + "api/node/a", "", nil, 404},
		{"a folder", "GET", right + "assets/", "", nil, 404},
		{"a folder", "GET", right + "assets/sub", "", nil, 404},
		{"a file of no known kind", "GET", right + "assets/.secret", "", nil, 404},
		{"a file beside", "GET", right + "other.js", "", nil, 404},
		{"out of the folder", "GET", right + "assets/../other.js", "", nil, 404},
		{"out of the folder", "GET", right + "assets/%2e%2e/other.js", "", nil, 404},
		{"out of the folder", "GET", right + "assets/..%2fother.js", "", nil, 404},
		{"out of all folders", "GET", right + "assets/../../../../../../etc/passwd", "", nil, 404},
		{"out of all folders", "GET", right + "assets/%2fetc/passwd", "", nil, 404},
		{"out of the secret", "GET", "/x/../" + testSecret + "/", "", nil, 404},
		{"into the secret", "GET", "/" + testSecret + "/../" + testSecret + "/", "", nil, 404},
		{"two slashes", "GET", right + "/", "", nil, 404},

		{"a foreign host", "GET", right, "evil.example:8000", nil, 403},
		{"a name that was rebound", "GET", right + "api/stream", "evil.example:8000", headers{"Origin": "http://evil.example:8000", "Sec-Fetch-Site": "same-origin"}, 403},
		{"a host that ends alike", "GET", right, "evil-127.0.0.1:8000", nil, 403},
		{"a host that begins alike", "GET", right, "127.0.0.1.evil.example:8000", nil, 403},
		{"another port", "GET", right, "127.0.0.1:8001", nil, 403},
		{"no port", "GET", right, "127.0.0.1", nil, 403},
		{"another address of this machine", "GET", right, "127.0.0.2:8000", nil, 403},
		{"no host", "GET", right, " ", nil, 403},

		{"a foreign origin", "GET", right + "api/stream", "", headers{"Origin": "http://evil.example"}, 403},
		{"no origin of a file", "GET", right + "api/stream", "", headers{"Origin": "null"}, 403},
		{"HTTPS", "GET", right + "api/stream", "", headers{"Origin": "https://" + testHost}, 403},
		{"the origin of another port", "GET", right + "api/stream", "", headers{"Origin": "http://127.0.0.1:8001"}, 403},
		{"the origin of another name", "GET", right + "api/stream", "", headers{"Origin": "http://localhost:8000"}, 403},
		{"another site's", "GET", right + "api/stream", "", headers{"Sec-Fetch-Site": "cross-site"}, 403},
		{"the same machine's", "GET", right + "api/stream", "", headers{"Sec-Fetch-Site": "same-site"}, 403},
		{"the page in a frame", "GET", right, "", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"a file by another page", "GET", right + "assets/page.js", "", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403},
		{"a file that is shown", "GET", right + "assets/page.js", "", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},

		{"a change without origin", "POST", right + "api/change", "", nil, 403},
		{"a change by another page", "POST", right + "api/change", "", headers{"Origin": "http://evil.example"}, 403},
		{"a form of another page", "POST", right, "", headers{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a WebSocket without origin", "GET", right + "api/terminal/a", "", headers{"Upgrade": "websocket", "Connection": "Upgrade"}, 403},
		{"a WebSocket of another page", "GET", right + "api/terminal/a", "", headers{"Upgrade": "websocket", "Connection": "Upgrade", "Origin": "http://evil.example"}, 403},
		{"a preflight of another page", "OPTIONS", right + "api/change", "", headers{"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}, 403},
		{"a preflight that lies", "OPTIONS", right + "api/change", "", headers{"Origin": testOrigin, "Access-Control-Request-Method": "POST"}, 404},
		{"another method", "DELETE", right, "", headers{"Origin": testOrigin}, 404},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, nil)
			r.Host = c.host
			if c.host == "" {
				r.Host = testHost
			}
			for name, value := range c.headers {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			testServer().handler().ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.status)
			}
			if c.status == 403 && w.Body.Len() > 0 || c.status == 404 && strings.Contains(w.Body.String(), testSecret) {
				t.Errorf("%s %s: it learns %q", c.method, c.path, w.Body)
			}
			for name, value := range map[string]string{
				"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "", "Set-Cookie": "",
			} {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s %s: %s: %q, want %q", c.method, c.path, name, got, value)
				}
			}
		})
	}
}

// A secret that is wrong is not told apart from a path that is: neither by the status nor by a header or the body.
func TestNotToldApart(t *testing.T) {
	answers := map[string]bool{}
	for _, path := range []string{"/wrong/", "/wrong/api/stream", "/" + testSecret + "/nothing", "/" + testSecret + "/assets/nothing.js"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = testHost
		w := httptest.NewRecorder()
		testServer().handler().ServeHTTP(w, r)
		answers[fmt.Sprint(w.Code, w.Header(), w.Body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("%v", answers)
	}
}

// Where others are listened to, their addresses are hosts, but names only if they were given.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		address, port string
		local         bool
		url           string
		ours, theirs  []string
	}{
		{"127.0.0.1:0", "81", true, "http://127.0.0.1:81/s/", []string{"127.0.0.1:81", "localhost:81", "[::1]:81"}, []string{"10.0.0.1:81", "127.0.0.1:80", "127.0.0.1"}},
		{"[::1]:0", "81", true, "http://[::1]:81/s/", []string{"127.0.0.1:81", "localhost:81", "[::1]:81"}, []string{"[::2]:81"}},
		{"LocalHost:81", "81", true, "http://localhost:81/s/", []string{"localhost:81"}, []string{"localhost.evil.example:81"}},
		{"10.0.0.1:80", "80", false, "http://10.0.0.1:80/s/", []string{"10.0.0.1", "10.0.0.1:80", "localhost", "[::1]"}, []string{"10.0.0.2", "host"}},
		{"Host:81", "81", false, "http://host:81/s/", []string{"host:81", "HOST:81", "127.0.0.1:81"}, []string{"other:81", "10.0.0.1:81"}},
		{"0.0.0.0:0", "81", false, "http://127.0.0.1:81/s/", []string{"10.0.0.1:81", "[fe80::1]:81", "localhost:81"}, []string{"host:81", "evil.example:81", ":81", "10.0.0.1:82"}},
		{":81", "81", false, "http://127.0.0.1:81/s/", []string{"10.0.0.1:81"}, []string{"host:81", ":81"}},
		{"[::]:81", "81", false, "http://127.0.0.1:81/s/", []string{"[2001:db8::1]:81"}, []string{"host:81"}},
	} {
		g := newGuard("s", c.address, c.port)
		if g.local() != c.local || g.url() != c.url {
			t.Errorf("%s: local: %v, %s", c.address, g.local(), g.url())
		}
		for _, host := range c.ours {
			if !g.isOurs(host) {
				t.Errorf("%s: %s is not ours", c.address, host)
			}
		}
		for _, host := range c.theirs {
			if g.isOurs(host) {
				t.Errorf("%s: %s is ours", c.address, host)
			}
		}
	}
}

// Secrets are long, and never the same.
func TestSecret(t *testing.T) {
	a, b := newSecret(), newSecret()
	if len(a) != 32 || a == b || strings.Trim(a+b, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("%s %s", a, b)
	}
}

// A body that is too long is not read, and one that is no JSON is no change.
func TestBodies(t *testing.T) {
	for _, c := range []struct{ kind, body, want string }{
		{"application/json", `{"act": "cut", "endpoint": "` + strings.Repeat("a", mostBody) + `"}`, "the request has more than 65536 bytes"},
		{"text/plain", `{"act": "cut"}`, `Content-Type "text/plain": expected application/json`},
		{"", `{"act": "cut"}`, `Content-Type "": expected application/json`},
		{"application/json", `{"act": "cut"} {}`, "expected one value"},
		{"application/json", `{"act": "cut", "at": 3}`, `unknown field "at"`},
		{"application/json; charset=utf-8", `{`, "unexpected EOF"},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, mostBody)
		var v struct{ Act, Endpoint string }
		if err := read(r, &v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: %v, want %q", c.body, err, c.want)
		}
	}
}

// The server bounds what a client sends before it is known to be anybody.
func TestHugeHeader(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config = web.Server(testServer().handler())
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
	}() // it is cut off
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v, %+v", err, resp)
	}
}
