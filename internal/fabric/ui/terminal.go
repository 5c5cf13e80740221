package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/coder/websocket"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/shell"
	"github.com/ndklab/ndklab/internal/terminal"
)

const (
	mostTerminals = 32
	mostInput     = 1 << 20 // bytes of a message: what is pasted at once
	most          = 4096    // rows and columns of a terminal
)

// A size is that of a terminal's window, as the page says it.
type size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// terminal connects the page to a shell in a node, which ends with the connection. A page that does not read has the shell wait.
func (s *server) terminal(w http.ResponseWriter, r *http.Request) {
	target := r.PathValue("node")
	if _, err := s.lab.Node(r.Context(), target); err != nil {
		refuse(w, err)
		return
	}
	if !s.terminals.take() {
		refuse(w, control.Errorf(control.Unable, "%d terminals are open already, expected one to be closed first", mostTerminals))
		return
	}
	defer s.terminals.free()
	// It checks the Origin once more, by itself.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // the client was told
	}
	defer conn.CloseNow()
	conn.SetReadLimit(mostInput)
	ctx, cancel := context.WithCancel(s.alive) // the request's ends with its handler, but not with the connection
	defer cancel()
	status, err := s.shell(ctx, cancel, conn, target)
	code, reason := websocket.StatusNormalClosure, fmt.Sprintf("the shell has ended with status %d", status)
	if err != nil {
		code, reason = websocket.StatusInternalError, err.Error()
	}
	_ = conn.Close(code, reason[:min(len(reason), 120)]) // who has gone is not to be told (RFC 6455, 5.5: 125 bytes)
}

// shell runs a shell in a node with a terminal that conn is the other end of, until either ends. gone ends ctx.
func (s *server) shell(ctx context.Context, gone func(), conn *websocket.Conn, target string) (status int, err error) {
	controlling, peer, err := terminal.Open()
	if err != nil {
		return 0, control.Errorf(control.Unable, "%v", err)
	}
	defer controlling.Close() // hangs up
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		showOutput(ctx, conn, controlling)
	}()
	go func() {
		takeInput(ctx, conn, controlling)
		gone()
		_ = controlling.SetReadDeadline(time.Unix(1, 0)) // nobody is there to be shown anything
	}()
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	env := append(shell.WithSelf(shell.WithPrompt(os.Environ(), s.lab.Info().Lab+"/"+target)), "TERM=xterm-256color")
	status, err = s.lab.Nodes.Exec(ctx, target, node.Command{Args: []string{shell.Path()}, Env: env, Dir: dir, Terminal: true}, peer, peer, peer)
	peer.Close() // which ends the output, unless something in the background goes on
	_ = controlling.SetReadDeadline(time.Now().Add(time.Second))
	<-shown
	if ctx.Err() != nil {
		return 0, errors.New("the page has gone")
	}
	return status, err
}

// showOutput passes on what is written to a terminal.
func showOutput(ctx context.Context, conn *websocket.Conn, controlling *os.File) {
	buf := make([]byte, 32<<10)
	for {
		n, err := controlling.Read(buf)
		if n > 0 && conn.Write(ctx, websocket.MessageBinary, buf[:n]) != nil || err != nil {
			return
		}
	}
}

// takeInput passes on what is typed, and sets the terminal's size, until the connection ends.
func takeInput(ctx context.Context, conn *websocket.Conn, controlling *os.File) {
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if _, err := controlling.Write(data); err != nil {
				return
			}
			continue
		}
		var window size
		if err := json.Unmarshal(data, &window); err != nil || window.Rows < 1 || window.Rows > most || window.Columns < 1 || window.Columns > most {
			_ = conn.Close(websocket.StatusUnsupportedData, `expected {"rows": ROWS, "columns": COLUMNS}`)
			return
		}
		if err := terminal.Resize(controlling, window.Rows, window.Columns); err != nil {
			return
		}
	}
}
