package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
)

// A rnicPlace is where programs for RDMA have the adapter: in their own process, the default, or in one beside it.
type rnicPlace string

// rnicFlag adds --rnic.
func rnicFlag(cmd *cobra.Command) *rnicPlace {
	place := new(rnicPlace)
	cmd.Flags().Var(place, "rnic", "where a program for RDMA has the adapter: in its own process, or in one beside it")
	return place
}

func (p *rnicPlace) String() string { return string(*p) }
func (p *rnicPlace) Type() string   { return "program|process" }
func (p *rnicPlace) Set(value string) error {
	if value != "program" && value != "process" {
		return errors.New("expected program or process")
	}
	*p = rnicPlace(value)
	return nil
}

// environment is ours, with the variable that libibverbs.so.1 goes by where the flag was given.
func (p *rnicPlace) environment() []string {
	env := os.Environ()
	if *p != "" {
		env = append(env, "NDKLAB_RNIC="+string(*p))
	}
	return env
}
