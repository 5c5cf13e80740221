package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

// runPair measures one pair of processes, in namespaces of their own, and prints what they
// print: ends of ndklab or, where the first argument says so, of floor or udp.
func runPair(ctx context.Context, args []string) error {
	commands := endPair
	if len(args) > 0 && (args[0] == "floor" || args[0] == "udp") {
		commands = rawPair
	}
	if err := checkRoot(); err != nil {
		return err
	}
	places, err := newPair()
	if err != nil {
		return err
	}
	defer closePlaces(places[:]...) // the end of the process would do as well
	server, client, err := commands(places, args)
	if err != nil {
		return err
	}
	fromClient, fromServer, err := between(ctx, places, server, client)
	if err != nil {
		return err
	}
	fmt.Print("client ", fromClient, "server ", strings.TrimSpace(fromServer), "\n")
	return nil
}

// endPair returns ends of ndklab. The server's profile is beside the client's.
func endPair(places [2]*place, args []string) (server, client command, err error) {
	c := &endConfig{}
	f := flag.NewFlagSet("pair", flag.ContinueOnError)
	c.flags(f)
	if err := parseFlags(f, args); err != nil {
		return server, client, err
	}
	if err := c.check(); err != nil {
		return server, client, fmt.Errorf("%w: %w", errUsage, err)
	}
	server, client = endCommands(places, args...)
	if c.CPUProfile != "" {
		server.args = append(server.args, "-cpuprofile", c.CPUProfile+".server")
	}
	return server, client, nil
}

// rawPair returns ends without the provider.
func rawPair(places [2]*place, args []string) (server, client command, err error) {
	server, client = rawCommands(places, args[0], args[1:]...)
	_, err = parseFloor(args[0], client.args[2:])
	return server, client, err
}

// endCommands returns two ends with flags in common.
func endCommands(places [2]*place, flags ...string) (server, client command) {
	a, b := places[0].address.String(), places[1].address.String()
	server = ours("end", append([]string{"-role", "server", "-local", b}, flags...)...)
	client = ours("end", append([]string{"-role", "client", "-local", a, "-peer", b}, flags...)...)
	return server, client
}

// rawCommands returns two ends without the provider, of floor or udp, with flags in common.
func rawCommands(places [2]*place, program string, flags ...string) (server, client command) {
	a, b := places[0].address.String(), places[1].address.String()
	server = ours(program, append([]string{"-role", "server", "-local", b, "-peer", a}, flags...)...)
	client = ours(program, append([]string{"-role", "client", "-local", a, "-peer", b}, flags...)...)
	return server, client
}
