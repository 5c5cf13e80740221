package node

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/node/verbs"
	"github.com/ndklab/ndklab/internal/node/verbs/sysclass"
	"github.com/ndklab/ndklab/provider"
)

// This file shows the adapter to programs for RDMA (package verbs).

// programs has the data that the agent needs for that.
type programs struct {
	Libraries  string // see Config
	SearchPath string // LD_LIBRARY_PATH of the node's variables
	Addresses  []localAddress
}

// portRate is the rate that the adapter's port reports, in bits per second. The links have
// rates of their own.
const portRate = 100e9

// programs returns nil where there is no adapter or no library for it.
func (cfg *Config) programs() *programs {
	addresses := cfg.addresses()
	if cfg.Libraries == "" || cfg.Forwards || len(addresses) == 0 {
		return nil
	}
	return &programs{cfg.Libraries, cfg.Env[libraryPath], addresses}
}

const libraryPath = "LD_LIBRARY_PATH"

// mountPrograms shows the adapter to programs. Commands run also where that fails.
func (a *agent) mountPrograms(p *programs) {
	d, err := p.device()
	if err != nil {
		logHidden(err)
		return
	}
	mounts, err := verbs.Mount(p.Libraries, p.SearchPath, d)
	if err != nil {
		logHidden(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mounts, a.device = mounts, d
}

func logHidden(err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(os.Stderr, "RDMA programs do not find the adapter: %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// preparePrograms prepares a command that is about to run: its own folders of libraries, and
// the port's state and counters as they are now.
func (a *agent) preparePrograms(cmd *Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mounts == nil {
		return
	}
	if err := a.mounts.CoverIn(variable(cmd.Env, libraryPath)); err != nil {
		logHidden(err)
	}
	a.updatePrograms()
}

// updateInterval is the interval at which a command finds new counters. Tools that show them
// read them once a second.
const updateInterval = time.Second

// updateWhile updates what programs see of the adapter while a command runs.
func (a *agent) updateWhile(p *process) {
	again := time.NewTicker(updateInterval)
	defer again.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-again.C:
			a.mu.Lock()
			a.updatePrograms()
			a.mu.Unlock()
		}
	}
}

// updatePrograms updates what programs see of the port and its counters. mu is held.
func (a *agent) updatePrograms() {
	if a.mounts == nil {
		return
	}
	down := !slices.ContainsFunc(a.device.Interfaces, hasCarrier)
	changed := down != a.device.Down
	a.device.Down = down
	if a.shared != nil {
		if now := a.shared.Device().Counters(); now != a.counted {
			a.counted, changed = now, true
			a.device.Counters = portCounters(now)
		}
	}
	if !changed {
		return
	}
	if err := verbs.Update(a.device); err != nil {
		fmt.Fprintf(os.Stderr, "the adapter's state and counters in /sys/class do not change: %v\n", err)
	}
}

// hasCarrier reports whether an interface is up and its link is, too: of one that is down, the
// file cannot be read.
func hasCarrier(i sysclass.Interface) bool {
	text, err := os.ReadFile("/sys/class/net/" + i.Name + "/carrier")
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

func portCounters(c provider.Counters) sysclass.Counters {
	return sysclass.Counters{
		ReceivedOctets: c.RDMAInOctets, SentOctets: c.RDMAOutOctets,
		ReceivedPackets: c.RDMAInFrames, SentPackets: c.RDMAOutFrames, Own: c.Map(),
	}
}

// device is the adapter as /sys/class has it. The first GID is an IPv4 address if there is
// one, as many programs take the first unless told otherwise.
func (p *programs) device() (*sysclass.Device, error) {
	d := &sysclass.Device{Name: verbs.DeviceName, Rate: portRate, Counters: portCounters(provider.Counters{})}
	slices.SortStableFunc(p.Addresses, func(a, b localAddress) int { return family6(a.Address) - family6(b.Address) })
	for _, a := range p.Addresses {
		d.GIDs = append(d.GIDs, sysclass.GID{Address: a.Address, Interface: a.Interface})
		if slices.ContainsFunc(d.Interfaces, func(i sysclass.Interface) bool { return i.Name == a.Interface }) {
			continue
		}
		mac, err := readMAC(a.Interface)
		if err != nil {
			return nil, err
		}
		d.Interfaces = append(d.Interfaces, sysclass.Interface{Name: a.Interface, MAC: mac})
	}
	return d, nil
}

func family6(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// readMAC reads an interface's address by the /sys that mountSys has mounted: the kernel's
// other interface to it costs an agent a millisecond the first time.
func readMAC(name string) (mac sysclass.MAC, err error) {
	text, err := os.ReadFile("/sys/class/net/" + name + "/address")
	if err != nil {
		return mac, err
	}
	if _, err := fmt.Sscanf(string(text), "%02x:%02x:%02x:%02x:%02x:%02x", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5]); err != nil {
		return mac, fmt.Errorf("address of %s: %w", name, err)
	}
	return mac, nil
}
