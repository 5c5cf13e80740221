package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// This file decides who is answered. It is pure, but for newSecret.
//
// A client that gets answers rules the lab, and runs commands in its nodes. So the first element of the path is a secret, which
// the page's address carries; cookies, which browsers send along whoever asks, there are none. A page of somebody
// else's that a browser shows at the same time is told apart by what browsers say of it: Host, which a name that was rebound to this
// machine betrays, Origin and Sec-Fetch-Site.

// secretBytes is the length of a secret: 192 random bits.
const secretBytes = 24

// newSecret returns a secret, which a path may have as it is.
func newSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b)
}

// A guard knows who is answered.
type guard struct {
	secret string
	port   string
	host   string // of the address that is listened at; "" is every address of this machine
}

// newGuard returns the guard of a server that listens at an address, HOST:PORT, where port is the one that it got.
func newGuard(secret, address, port string) *guard {
	host, _, err := net.SplitHostPort(address)
	if ip, bad := netip.ParseAddr(host); err != nil || bad == nil && ip.IsUnspecified() {
		host = ""
	}
	return &guard{secret: secret, port: port, host: strings.ToLower(host)}
}

// local reports whether only this machine reaches the address that is listened at.
func (g *guard) local() bool {
	ip, err := netip.ParseAddr(g.host)
	return g.host == "localhost" || err == nil && ip.IsLoopback()
}

// url returns the page's address.
func (g *guard) url() string {
	host := g.host
	if host == "" {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, g.port) + "/" + g.secret + "/"
}

// admit returns the path below the secret of a request that is to be answered, and 0; or the status that refuses it.
// A secret that is wrong is not told apart from a path that does not exist, and nobody whom a browser calls a stranger learns even that.
func (g *guard) admit(r *http.Request) (below string, refused int) {
	if !g.isOurs(r.Host) {
		return "", http.StatusForbidden
	}
	first, below, slash := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	isPage := r.Method == http.MethodGet && slash && below == ""
	if !isSame(r, isPage) {
		return "", http.StatusForbidden
	}
	if subtle.ConstantTimeCompare([]byte(first), []byte(g.secret)) != 1 || !slash {
		return "", http.StatusNotFound
	}
	if below != "" && path.Clean("/"+below) != "/"+below { // nothing here is named so
		return "", http.StatusNotFound
	}
	return below, 0
}

// isOurs reports whether a Host names this server. Where every address of the machine is listened at, any address does,
// but no name: names can be rebound.
func (g *guard) isOurs(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil { // the port may be missing if it is HTTP's own
		host, port = strings.TrimSuffix(strings.TrimPrefix(hostPort, "["), "]"), "80"
	}
	if port != g.port {
		return false
	}
	switch host = strings.ToLower(host); host {
	case "127.0.0.1", "localhost", "::1":
		return true
	case g.host:
		return host != ""
	}
	_, err = netip.ParseAddr(host)
	return g.host == "" && err == nil
}

// isSame reports whether a request comes from the page itself, or from no page at all. A browser may be led to the page from
// anywhere, in a tab of its own. Requests that change something, and WebSockets, must say where they come from.
func isSame(r *http.Request, isPage bool) bool {
	h := r.Header
	switch site := h.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		if !isPage || h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document" {
			return false
		}
	}
	origins := h.Values("Origin")
	if len(origins) == 0 {
		return (r.Method == http.MethodGet || r.Method == http.MethodHead) && h.Get("Upgrade") == ""
	}
	return len(origins) == 1 && origins[0] == "http://"+r.Host
}

// policy has the browser hold the page to this: nothing is loaded but from here, nothing is run but files of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// harden sets the headers that every answer has, also one that refuses.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer") // the address has the secret
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), usb=()")
}
