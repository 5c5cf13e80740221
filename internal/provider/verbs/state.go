package verbs

import "syscall"

// A QPType is the kind of a queue pair, numbered as ibv_qp_type.
type QPType uint8

// The kinds that there are.
const (
	RC QPType = 2
	UC QPType = 3
	UD QPType = 4
)

// A QPState is ibv_qp_state (IBTA Vol. 1, 10.3.1).
type QPState uint8

// The states.
const (
	Reset QPState = iota
	Init
	ReadyToReceive
	ReadyToSend
	SendQueueDrain
	SendQueueError
	Error
)

// An AttributeMask says which attributes Modify is to take, as ibv_qp_attr_mask.
type AttributeMask uint32

// The attributes.
const (
	MaskState AttributeMask = 1 << iota
	MaskCurrentState
	MaskDrainNotify
	MaskAccess
	MaskPKeyIndex
	MaskPort
	MaskQKey
	MaskAddress
	MaskPathMTU
	MaskTimeout
	MaskRetryCount
	MaskRNRRetry
	MaskReceivePSN
	MaskMaxReads
	MaskAlternatePath
	MaskMinRNRTimer
	MaskSendPSN
	MaskMaxDestReads
	MaskPathMigration
	MaskCapacity
	MaskDestQPN
)

// A transition says which attributes are required and which may be given beside.
type transition struct{ required, optional AttributeMask }

// whileSending has the attributes that may change while a queue pair sends, by kind.
var whileSending = map[QPType]AttributeMask{
	RC: MaskCurrentState | MaskAccess | MaskAlternatePath | MaskPathMigration | MaskMinRNRTimer,
	UC: MaskCurrentState | MaskAccess | MaskAlternatePath | MaskPathMigration,
	UD: MaskCurrentState | MaskQKey,
}

// transitions are those of IBTA Vol. 1, 11.2.5.2 (table 95) but for the ones to Reset and Error, which are
// always possible and take nothing else.
var transitions = map[QPType]map[[2]QPState]transition{
	RC: {
		{Reset, Init}: {MaskPKeyIndex | MaskPort | MaskAccess, 0},
		{Init, Init}:  {0, MaskPKeyIndex | MaskPort | MaskAccess},
		{Init, ReadyToReceive}: {
			MaskAddress | MaskPathMTU | MaskDestQPN | MaskReceivePSN | MaskMaxDestReads | MaskMinRNRTimer,
			MaskAlternatePath | MaskAccess | MaskPKeyIndex,
		},
		{ReadyToReceive, ReadyToSend}:    {MaskTimeout | MaskRetryCount | MaskRNRRetry | MaskSendPSN | MaskMaxReads, whileSending[RC]},
		{ReadyToSend, ReadyToSend}:       {0, whileSending[RC]},
		{ReadyToSend, SendQueueDrain}:    {0, MaskDrainNotify},
		{SendQueueDrain, ReadyToSend}:    {0, whileSending[RC]},
		{SendQueueDrain, SendQueueDrain}: {0, MaskPort | MaskAddress | MaskTimeout | MaskRetryCount | MaskRNRRetry | MaskMaxReads | MaskMaxDestReads | MaskAlternatePath | MaskAccess | MaskPKeyIndex | MaskMinRNRTimer | MaskPathMigration},
	},
	UC: {
		{Reset, Init}: {MaskPKeyIndex | MaskPort | MaskAccess, 0},
		{Init, Init}:  {0, MaskPKeyIndex | MaskPort | MaskAccess},
		{Init, ReadyToReceive}: {
			MaskAddress | MaskPathMTU | MaskDestQPN | MaskReceivePSN,
			MaskAlternatePath | MaskAccess | MaskPKeyIndex,
		},
		{ReadyToReceive, ReadyToSend}:    {MaskSendPSN, whileSending[UC]},
		{ReadyToSend, ReadyToSend}:       {0, whileSending[UC]},
		{ReadyToSend, SendQueueDrain}:    {0, MaskDrainNotify},
		{SendQueueDrain, ReadyToSend}:    {0, whileSending[UC]},
		{SendQueueDrain, SendQueueDrain}: {0, MaskAddress | MaskAlternatePath | MaskAccess | MaskPKeyIndex | MaskPathMigration},
		{SendQueueError, ReadyToSend}:    {0, MaskCurrentState | MaskAccess},
	},
	UD: {
		{Reset, Init}:                    {MaskPKeyIndex | MaskPort | MaskQKey, 0},
		{Init, Init}:                     {0, MaskPKeyIndex | MaskPort | MaskQKey},
		{Init, ReadyToReceive}:           {0, MaskPKeyIndex | MaskQKey},
		{ReadyToReceive, ReadyToSend}:    {MaskSendPSN, whileSending[UD]},
		{ReadyToSend, ReadyToSend}:       {0, whileSending[UD]},
		{ReadyToSend, SendQueueDrain}:    {0, MaskDrainNotify},
		{SendQueueDrain, ReadyToSend}:    {0, whileSending[UD]},
		{SendQueueDrain, SendQueueDrain}: {0, MaskPKeyIndex | MaskQKey},
		{SendQueueError, ReadyToSend}:    {0, whileSending[UD]},
	},
}

// allowed reports whether a queue pair of a kind may go from one state to another, or stay, with such attributes:
// EINVAL if not.
func (t QPType) allowed(from, to QPState, mask AttributeMask) error {
	mask &^= MaskState
	if to == Reset || to == Error {
		if mask != 0 {
			return syscall.EINVAL
		}
		return nil
	}
	with, ok := transitions[t][[2]QPState{from, to}]
	if !ok || mask&with.required != with.required || mask&^(with.required|with.optional) != 0 {
		return syscall.EINVAL
	}
	return nil
}
