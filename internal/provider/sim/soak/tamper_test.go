package soak

import (
	"errors"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// TestTamper: what a defect in the transport would do is noticed, within a few
// seeds, by the invariant that is for it.
func TestTamper(t *testing.T) {
	ack := func(p *roce.Received) bool { return p.Header.Opcode == roce.Acknowledge && p.Header.Syndrome.IsACK() }
	for name, test := range map[string]struct {
		invariant string
		tamper    func(*run, *roce.Received) bool
	}{
		"a byte of data is changed": {"memory as the model has it", func(_ *run, p *roce.Received) bool {
			if p.Header.Opcode.IsRC() && len(p.Payload) > 0 {
				p.Payload[len(p.Payload)-1] ^= 0x10
			}
			return true
		}},
		"data goes to the next byte": {"memory as the model has it", func(_ *run, p *roce.Received) bool {
			if p.Header.Opcode.IsWrite() && p.Header.Opcode.HasRETH() && p.Header.DMALength > 0 {
				p.Header.VA++
			}
			return true
		}},
		"an acknowledgement says too much": {"success means that the data is there", func(_ *run, p *roce.Received) bool {
			if ack(p) {
				p.Header.PSN = roce.PSNAdd(p.Header.PSN, 1)
			}
			return true
		}},
		"the end of a message is lost": {"what is received is what was sent", func(r *run, p *roce.Received) bool {
			if p.Header.Opcode == roce.SendOnly && len(p.Payload) > 0 {
				p.Payload = p.Payload[:len(p.Payload)-1]
			}
			return true
		}},
		"a request is refused for no reason": {"requests end as they should", func(_ *run, p *roce.Received) bool {
			if ack(p) {
				p.Header.Syndrome = roce.SyndromeRemoteAccess
			}
			return true
		}},
		"no acknowledgement comes any more": {"requests end as they should", func(r *run, p *roce.Received) bool {
			return !r.Ending || !ack(p)
		}},
		"receivers are never ready": {"no deadlock", func(r *run, p *roce.Received) bool {
			if r.Ending && ack(p) {
				p.Header.Syndrome = roce.SyndromeRNR // for 655 ms each time
			}
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var failure *trial.Failure
			for seed := uint64(1); seed <= 20; seed++ {
				r := newRun(seed, nil)
				r.Tamper = func(p *roce.Received) bool { return test.tamper(r, p) }
				// Another may notice first, such as that a request fails for no reason.
				if errors.As(r.Attempt(r.play), &failure) && failure.Invariant == test.invariant {
					return
				}
			}
			t.Fatalf("not noticed; at last: %v", failure)
		})
	}
}
