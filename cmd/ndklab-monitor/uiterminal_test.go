package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
)

// A terminal is a shell in the node, as large as the page says, which ends with the page.
func TestTerminal(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	dial := func(origin string) (*websocket.Conn, error) {
		conn, resp, err := websocket.Dial(t.Context(), string(p)+"api/terminal/h0", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if err != nil && resp != nil {
			err = fmt.Errorf("%s: %w", resp.Status, err)
		}
		return conn, err
	}
	for _, origin := range []string{"http://evil.example", "null"} {
		if _, err := dial(origin); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("from %s: %v", origin, err)
		}
	}
	send := func(conn *websocket.Conn, kind websocket.MessageType, text string) {
		t.Helper()
		if err := conn.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var shown strings.Builder
	until := func(conn *websocket.Conn, text string) error {
		for !strings.Contains(shown.String(), text) {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				return err
			}
			shown.Write(data)
		}
		return nil
	}
	t.Setenv("SHELL", "/bin/sh")
	conn, err := dial(p.origin())
	if err != nil {
		t.Fatal(err)
	}
	if err := until(conn, "["+lab+"/h0]"); err != nil {
		t.Fatalf("%v, shown %q", err, shown.String())
	}
	send(conn, websocket.MessageText, `{"rows": 31, "columns": 117}`)
	send(conn, websocket.MessageBinary, "stty size; echo $TERM; ip -o address show dev eth0; exit 3\r")
	for _, want := range []string{"31 117", "xterm-256color", "10.0.0.1/"} {
		if err := until(conn, want); err != nil {
			t.Fatalf("%v before %q, shown %q", err, want, shown.String())
		}
	}
	var closed websocket.CloseError
	if err := until(conn, "never"); !errors.As(err, &closed) || closed.Code != websocket.StatusNormalClosure || closed.Reason != "the shell has ended with status 3" {
		t.Errorf("%v", err)
	}

	// A program ends when the page goes: its end of a pipe closes.
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if conn, err = dial(p.origin()); err != nil {
		t.Fatal(err)
	}
	send(conn, websocket.MessageBinary, "sh -c 'echo here; exec sleep 1000' >"+pipe+"\r")
	end, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	lines := bufio.NewReader(end)
	if line, err := lines.ReadString('\n'); line != "here\n" || err != nil {
		t.Fatalf("%q %v", line, err)
	}
	if err := conn.CloseNow(); err != nil {
		t.Error(err)
	}
	if _, err := lines.ReadString('\n'); err != io.EOF {
		t.Errorf("%v", err)
	}

	// A size of nothing is refused.
	if conn, err = dial(p.origin()); err != nil {
		t.Fatal(err)
	}
	shown.Reset()
	send(conn, websocket.MessageText, `{"rows": 0, "columns": 117}`)
	if err := until(conn, "never"); !errors.As(err, &closed) || closed.Code != websocket.StatusUnsupportedData {
		t.Errorf("%v", err)
	}
}
