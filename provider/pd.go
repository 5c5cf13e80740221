package provider

import "github.com/ndklab/ndklab/internal/provider/sharing"

// A PD is a protection domain: regions and the QPs that may use them.
type PD struct {
	object
	Dispatch PDDispatch // as Adapter.Dispatch
	adapter  *Adapter
}

// CreatePD makes a protection domain.
func (a *Adapter) CreatePD(completion CreateCompletion, context any) (*PD, Status) {
	if !a.open() {
		return nil, StatusInvalidDeviceState
	}
	pd := &PD{adapter: a}
	if !pd.reserve(a.miniport, sharing.PDs, a.miniport.capabilities.MaxPdCount) {
		return nil, StatusInsufficientResources
	}
	pd.Dispatch = pd
	pd.init(a.clock, ObjectTypePD, &a.object)
	return completeCreate(a.miniport, pd, &pd.object, completion, context)
}

// Close closes the domain (ndkpi.md 4.2).
func (pd *PD) Close(completion CloseCompletion, context any) Status {
	return pd.close(nil, nil, completion, context)
}

// privilegedToken is the privileged token of every domain. No region has it:
// tokens of slot 0 are not given out (NDK-PTOK-05).
const privilegedToken = 1

// PrivilegedMemoryRegionToken returns the token for SGEs whose address is a logical
// address of a LAM. It grants local read and write without registration, and a
// peer nothing.
func (pd *PD) PrivilegedMemoryRegionToken() uint32 { return privilegedToken }
