package interop

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An exchange is a program's two ends, as distributions ship it, and what must hold of them. In their commands, which a
// shell runs, SERVER stands for the server's address and CLIENT for the client's, GID for the index of an end's own
// GID, each with a 6 behind it for IPv6; PORT is a port that nothing else uses, FOLDER an end's own folder for files,
// FILE a file of the server's, and CASES the program of testdata/verbs.
type exchange struct {
	name           string // the server's command, unless there is another
	server, client string
	ready          string // a command that succeeds at the server when it is ready; else it is when it listens at PORT
	endless        bool   // the server does not end by itself, and is ended after the client
	toNode         bool   // the server is in the node alone
	port           uint16 // at which the server listens whatever it is told, if not 0
	brief          bool   // the short form has it, too
	// Expressions that match a line of what the client and the server print.
	clientPrints, serverPrints string
	// after is a command at the server when both have ended, which prints the client's last line again.
	after string
}

// exchangeTime bounds an exchange. None takes more than some seconds on an idle machine.
const exchangeTime = 5 * time.Minute

// exchanges runs exchanges, each with the server in the guest and in the node.
func (s *setting) exchanges(t *testing.T, all []exchange, node, guest *place) {
	for _, x := range all {
		if s.short && !x.brief {
			continue
		}
		if x.name == "" {
			x.name = x.server
		}
		t.Run(x.name, func(t *testing.T) {
			if !x.toNode {
				t.Run("to the guest", func(t *testing.T) { x.run(t, s, guest, node) })
			}
			t.Run("to the node", func(t *testing.T) { x.run(t, s, node, guest) })
		})
	}
}

func (x *exchange) run(t *testing.T, s *setting, server, client *place) {
	port := x.port
	if port == 0 {
		port = s.nextPort()
	}
	at := func(own *place, command string) string {
		return strings.NewReplacer(
			"SERVER6", server.address6.String(), "SERVER", server.address.String(),
			"CLIENT6", client.address6.String(), "CLIENT", client.address.String(),
			"GID6", own.gid6, "GID", own.gid,
			"PORT", fmt.Sprint(port), "FOLDER", own.folder, "FILE", server.folder+"/received", "CASES", own.cases,
		).Replace(command)
	}
	serving := server.start(t, at(server, x.server))
	if err := server.await(t, at(server, x.ready), port, serving); err != nil {
		serving.stop()
		<-serving.ended
		t.Fatalf("%v; it prints\n%s", err, serving.out)
	}
	calling := client.start(t, at(client, x.client))
	err := x.end(serving, calling)
	for _, end := range []struct{ name, text, prints string }{{"server", serving.out, x.serverPrints}, {"client", calling.out, x.clientPrints}} {
		if !regexp.MustCompile("(?m)" + end.prints).MatchString(end.text) {
			err = errors.Join(err, fmt.Errorf("the %s prints no %q", end.name, end.prints))
		}
	}
	if x.after != "" {
		lines := strings.Split(strings.TrimSpace(calling.out), "\n")
		out, afterErr := server.run(t, at(server, x.after))
		if afterErr != nil || strings.TrimSpace(out) != lines[len(lines)-1] {
			err = errors.Join(err, afterErr, fmt.Errorf("the server then prints %q, the client printed %q", out, lines[len(lines)-1]))
		}
	}
	if err != nil {
		t.Errorf("%v\nserver: %s\n%s\nclient: %s\n%s", err, at(server, x.server), serving.out, at(client, x.client), calling.out)
	}
}

// end waits for both ends. When one fails, or neither ends, the other is ended.
func (x *exchange) end(server, client *process) error {
	late := time.AfterFunc(exchangeTime, func() {
		client.stop()
		server.stop()
	})
	select {
	case <-client.ended:
		if client.err != nil || x.endless {
			server.stop()
		}
	case <-server.ended:
		if server.err != nil {
			client.stop()
		}
	}
	<-client.ended
	<-server.ended
	var err error
	if !late.Stop() {
		err = fmt.Errorf("they have not ended after %v", exchangeTime)
	}
	for _, e := range []error{client.err, server.err} {
		if e != nil && !endedTwice(e) && (e != server.err || !x.endless) {
			err = errors.Join(err, e)
		}
	}
	return err
}
