package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
)

// This file makes an adapter of what a topology says of it.

// startAdapter starts the node's adapter, at all its addresses, and shares it
// with the programs that run in the node. qpError is told of queue pairs in error.
func startAdapter(params *upParams, c clock.Clock, qpError func(provider.QPError)) (*lease.Server, error) {
	var set topology.Adapter
	if params.Adapter != nil {
		if err := json.Unmarshal(params.Adapter, &set); err != nil {
			return nil, fmt.Errorf("adapter: %w", err)
		}
	}
	settings := adapter.Config(&set)
	sockets := udp.Config{Lazy: true, ReceiveBuffer: udp.Memory(int(settings.ReceiveBuffer))}
	for _, a := range params.Addresses {
		sockets.Addresses = append(sockets.Addresses, a.Address)
		sockets.Interfaces = append(sockets.Interfaces, a.Interface)
	}
	carrier, err := udp.Open(sockets)
	if err != nil {
		return nil, err
	}
	settings.Clock = c
	settings.QPError = qpError
	settings.Rand = adapter.Rand(params.Seed)
	settings.Log = func(message string) { log.Printf("adapter: %s", message) }
	server, err := lease.Serve(settings, carrier)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adapter: %w", err), carrier.Close())
	}
	return server, nil
}

// addresses are those of the node that an adapter can have.
func (cfg *Config) addresses() []localAddress {
	var addresses []localAddress
	for _, i := range cfg.Interfaces {
		for _, prefix := range i.Addresses {
			if a := prefix.Addr(); adapter.Takes(a) {
				addresses = append(addresses, localAddress{a, i.Name})
			}
		}
	}
	return addresses
}
