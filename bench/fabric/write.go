package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
)

func init() {
	programs["serve"] = serveWrites
	programs["write"] = write
}

// rdmaPort is the port that the server listens on.
const rdmaPort = 18515

// The writes of a rig: a lab's workload, without a lab.
var writes = workload.Spec{Name: "bulk", Operation: topology.Write, Size: writeSize, Depth: 32, Duration: 2 * time.Second, Seed: seed}

// openAdapter starts an RDMA adapter at an end of a rig.
func openAdapter(end int) (*provider.Miniport, error) {
	carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{addresses[end]}})
	if err != nil {
		return nil, err
	}
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = 0 // the largest that the link allows, as in labs
	m, err := provider.NewMiniport(provider.Config{
		Configuration: &configuration,
		Carrier:       carrier, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(seed, uint64(end))),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
	})
	if err != nil {
		return nil, errors.Join(err, carrier.Close())
	}
	return m, nil
}

// serveWrites END is the server.
func serveWrites(args []string) error {
	end, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	m, err := openAdapter(end)
	if err != nil {
		return err
	}
	if err := workload.NewHost(m, clock.Real()).Serve(writes, netip.AddrPortFrom(addresses[end], rdmaPort)); err != nil {
		return err
	}
	fmt.Println("ready")
	<-inputEnd()
	return nil
}

// write END writes to the other end and prints how many bits of payload there were
// per second.
func write(args []string) error {
	end, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	m, err := openAdapter(end)
	if err != nil {
		return err
	}
	done := make(chan workload.Result, 1)
	to := netip.AddrPortFrom(addresses[1-end], rdmaPort)
	if err := workload.NewHost(m, clock.Real()).Run(writes, addresses[end], to, func(r workload.Result) { done <- r }); err != nil {
		return err
	}
	r := <-done
	if r.Errors > 0 {
		return errors.New(r.Error)
	}
	return json.NewEncoder(os.Stdout).Encode(float64(r.Bytes) * 8 / r.Seconds)
}

// writeRate measures how fast RDMA WRITE is between the ends of a rig, payload bits per
// second.
func (r *rig) writeRate(ctx context.Context) (float64, error) {
	server, err := r.b.start(ctx, "serve", 1)
	if err != nil {
		return 0, err
	}
	defer server.stop()
	if err := server.ready(); err != nil {
		return 0, err
	}
	client, err := r.a.start(ctx, "write", 0)
	if err != nil {
		return 0, err
	}
	var rate float64
	return rate, client.result(&rate)
}
