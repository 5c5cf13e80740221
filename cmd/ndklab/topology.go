package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"os"
	"slices"
	"strconv"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/textfile"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// readTopology reads and checks a topology file and the files that it refers to.
func readTopology(ctx context.Context, file string) (*topology.Topology, error) {
	text, err := readText(ctx, file)
	if err != nil {
		return nil, err
	}
	return text.parse(ctx, topology.Options{})
}

// A topologyText is the text of a topology, of which a name stands in errors.
type topologyText struct {
	name string
	data []byte
	gone bool // it is in no file that could be read again
	// variables are those of the environment that the text has and that were set when it
	// was parsed, as NAME=value: without them it would say something else.
	variables []string
	// sources are digests of the files that the text names, by name, from the last parse.
	sources map[string]string
}

// digest returns what the topology comes from, as one word: the text, the variables, and the files
// that it names.
func (t *topologyText) digest() string {
	sum := sha256.New()
	word := func(text string) { fmt.Fprintf(sum, "%d:%s,", len(text), text) }
	word(string(t.data))
	for _, v := range slices.Sorted(slices.Values(t.variables)) {
		word(v)
	}
	for _, name := range slices.Sorted(maps.Keys(t.sources)) {
		word(name)
		word(t.sources[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// readText reads a topology file, or standard input.
func readText(ctx context.Context, file string) (*topologyText, error) {
	return unlessInterrupted(ctx, func() (*topologyText, error) {
		if file == standardInput {
			data, err := limited(os.Stdin)
			if err != nil {
				return nil, control.Errorf(control.Usage, "%s: %v", inputName, err)
			}
			return &topologyText{name: inputName, data: data, gone: true}, nil
		}
		data, err := readFile(file)
		if err != nil {
			return nil, control.Errorf(control.Usage, "%v", err)
		}
		return &topologyText{name: file, data: data}, nil
	})
}

// parse checks the text, and the files that it refers to. The options need not say how
// to read these, nor what variables there are.
func (t *topologyText) parse(ctx context.Context, options topology.Options) (*topology.Topology, error) {
	var variables []string
	sources := map[string]string{}
	options.Read = func(file string) ([]byte, error) {
		data, err := readFile(file)
		sum := sha256.Sum256(data)
		sources[file] = hex.EncodeToString(sum[:])
		return data, err
	}
	options.Variable = func(name string) (string, bool) {
		value, set := os.LookupEnv(name)
		if word := name + "=" + value; set && !slices.Contains(variables, word) {
			variables = append(variables, word)
		}
		return value, set
	}
	parsed, err := unlessInterrupted(ctx, func() (*topology.Topology, error) { return topology.ParseWith(options, t.name, t.data) })
	if err == nil { // and so nothing goes on
		t.variables, t.sources = variables, sources
	}
	return parsed, err
}

// unlessInterrupted returns what read reads from files. It returns when ctx ends, even if
// one of them is a pipe that nobody writes to.
func unlessInterrupted[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// limited reads up to a little more than a topology may have, so that a device that
// never ends does not fill memory.
func limited(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, topology.MaxSize+1)) }

// readFile is a topology.ReadFile.
func readFile(file string) ([]byte, error) { return textfile.Read(file, topology.MaxSize+1) }

// A seedFlag is --seed. It is a pflag.Value.
type seedFlag struct {
	value uint64
	given bool
	fixed bool // what has no seed has seed 1, rather than one that is drawn
}

func newSeedFlag(cmd *cobra.Command) *seedFlag {
	s := new(seedFlag)
	cmd.Flags().Var(s, "seed", "seed of all randomness, instead of the file's")
	return s
}

// Set implements pflag.Value.
func (s *seedFlag) Set(text string) error {
	value, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return fmt.Errorf("expected a whole number from 0 to %d", uint64(math.MaxUint64))
	}
	s.value, s.given = value, true
	return nil
}

// Type implements pflag.Value: what --help calls the value.
func (s *seedFlag) Type() string { return "uint" }

// String implements pflag.Value: the default, which is none.
func (s *seedFlag) String() string { return "" }

// seedsDrawn is the number of seeds that may be drawn. The numbers of JSON are exact up
// to 2^53 where they are read as IEEE 754 has them, as in JavaScript and jq, and a seed
// is also typed by hand.
const seedsDrawn = 1 << 32

// settle makes sure that the topology has a seed: the flag's, the file's, or
// one drawn and told.
func (s *seedFlag) settle(t *topology.Topology, stderr io.Writer) error {
	switch {
	case s.given:
		t.Seed, t.HasSeed = s.value, true
	case !t.HasSeed:
		drawn, err := s.draw()
		if err != nil {
			return err
		}
		t.Seed, t.HasSeed = drawn, true
		if s.fixed {
			return nil
		}
		fmt.Fprintf(stderr, "seed %d: drawn, since %s has none; --seed %d repeats this run\n", t.Seed, t.Name, t.Seed)
	}
	return nil
}

// draw is a seed for what has none.
func (s *seedFlag) draw() (uint64, error) {
	if s.fixed {
		return 1, nil
	}
	drawn, err := rand.Int(rand.Reader, big.NewInt(seedsDrawn))
	if err != nil {
		return 0, fmt.Errorf("draw a seed: %w", err)
	}
	return drawn.Uint64(), nil
}
