package provider

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Configuration holds the standardised keywords of an NDK adapter (ndkpi.md
// 2.11), under their names without the asterisk. It is fixed when the device
// starts: there a changed keyword restarts the adapter.
type Configuration struct {
	// NetworkDirect says, unless it is 0, that NDK may be enabled. It is enabled
	// to begin with, then.
	NetworkDirect uint32
	// NetworkDirectTechnology can only be RoCEv2 here.
	NetworkDirectTechnology RDMATechnology
	// NetworkDirectRoCEFrameSize is the path MTU to use in bytes of payload: 256,
	// 512, 1024, 2048 or 4096, or the largest below it that the interface's own
	// MTU allows, which takes the place of *JumboPacket. 0, which the keyword
	// does not know, is the largest that the interface allows.
	NetworkDirectRoCEFrameSize uint32
}

// DefaultConfiguration returns what the keywords are where nothing is set
// (NDK-CFG-01).
func DefaultConfiguration() Configuration {
	return Configuration{NetworkDirect: 1, NetworkDirectTechnology: RoCEv2, NetworkDirectRoCEFrameSize: 1024}
}

func (c *Configuration) check() error {
	if c.NetworkDirectTechnology != RoCEv2 {
		return fmt.Errorf("NetworkDirectTechnology is %d, must be %d", c.NetworkDirectTechnology, RoCEv2)
	}
	if size := c.NetworkDirectRoCEFrameSize; size != 0 && roce.MTUCode(int(size)) == 0 {
		return fmt.Errorf("NetworkDirectRoCEFrameSize is %d, must be 256, 512, 1024, 2048, 4096, or 0 for the largest possible", size)
	}
	return nil
}

// Configuration reads the keywords.
func (m *Miniport) Configuration() Configuration { return m.configuration }
