package verbsoak

import (
	"errors"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// TestTamper: what a defect in the transport would do is noticed, within a few seeds, by the invariant that is for
// it.
func TestTamper(t *testing.T) {
	for name, test := range map[string]struct {
		invariant string
		tamper    func(*roce.Received) bool
	}{
		"a byte of data is changed": {"memory as the model has it", func(p *roce.Received) bool {
			if p.Header.Opcode.IsWrite() && len(p.Payload) > 0 {
				p.Payload[len(p.Payload)-1] ^= 0x10
			}
			return true
		}},
		"an acknowledgement says too much": {"success means that the data is there", func(p *roce.Received) bool {
			if p.Header.Opcode == roce.Acknowledge && p.Header.Syndrome.IsACK() {
				p.Header.PSN = roce.PSNAdd(p.Header.PSN, 1)
			}
			return true
		}},
		"an atomic adds another number": {"atomics are applied once", func(p *roce.Received) bool {
			p.Header.SwapAdd++
			return true
		}},
		"an atomic's answer is another's": {"atomics return what was there", func(p *roce.Received) bool {
			p.Header.Original++
			return true
		}},
		"immediate data is another message's": {"what is received is what was sent", func(p *roce.Received) bool {
			p.Header.Immediate++
			return true
		}},
		"a datagram is taken from another": {"what is received is what was sent", func(p *roce.Received) bool {
			if p.Header.Opcode == roce.UDSendOnly {
				p.Header.SourceQPN ^= 1 << 23
			}
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var failure *trial.Failure
			for seed := uint64(1); seed <= 40; seed++ {
				r := newRun(seed, nil)
				r.Tamper = test.tamper
				if errors.As(r.Attempt(r.play), &failure) && failure.Invariant == test.invariant {
					return
				}
			}
			t.Fatalf("not noticed; at last: %v", failure)
		})
	}
}
