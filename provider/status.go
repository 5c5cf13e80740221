package provider

import "fmt"

// A Status is an NTSTATUS code (ndkpi.md 2.9). It implements error, so that a
// failed call can be returned and compared as it is; StatusSuccess is never
// returned as an error.
type Status uint32

// The statuses.
const (
	StatusSuccess               Status = 0x00000000
	StatusPending               Status = 0x00000103
	StatusBufferOverflow        Status = 0x80000005
	StatusDeviceBusy            Status = 0x80000011
	StatusNoMoreEntries         Status = 0x8000001A
	StatusAccessViolation       Status = 0xC0000005
	StatusInvalidParameter      Status = 0xC000000D
	StatusInvalidDeviceRequest  Status = 0xC0000010
	StatusBufferTooSmall        Status = 0xC0000023
	StatusInvalidParameterMix   Status = 0xC0000030
	StatusDataOverrun           Status = 0xC000003C
	StatusDataError             Status = 0xC000003E
	StatusSharingViolation      Status = 0xC0000043
	StatusInsufficientResources Status = 0xC000009A
	StatusDeviceNotReady        Status = 0xC00000A3
	StatusIOTimeout             Status = 0xC00000B5
	StatusNotSupported          Status = 0xC00000BB
	StatusInternalError         Status = 0xC00000E5
	StatusCancelled             Status = 0xC0000120
	StatusRemoteResources       Status = 0xC000013D
	StatusInvalidAddress        Status = 0xC0000141
	StatusInvalidDeviceState    Status = 0xC0000184
	StatusInvalidBufferSize     Status = 0xC0000206
	StatusTooManyAddresses      Status = 0xC0000209
	StatusAddressAlreadyExists  Status = 0xC000020A
	StatusConnectionRefused     Status = 0xC0000236
	StatusConnectionInvalid     Status = 0xC000023A
	StatusConnectionActive      Status = 0xC000023B
	StatusNetworkUnreachable    Status = 0xC000023C
	StatusHostUnreachable       Status = 0xC000023D
	StatusConnectionAborted     Status = 0xC0000241
	StatusDeviceRemoved         Status = 0xC00002B6
	StatusImplementationLimit   Status = 0xC000042B

	// NDIS has these of its own (ndkpi.md 2.10).
	StatusBadVersion      Status = 0xC0010004
	StatusAdapterNotReady Status = 0xC0010011
	StatusInvalidLength   Status = 0xC0010014
	StatusInvalidData     Status = 0xC0010015
	StatusBufferTooShort  Status = 0xC0010016
)

var statusNames = map[Status]string{
	StatusSuccess:               "STATUS_SUCCESS",
	StatusPending:               "STATUS_PENDING",
	StatusBufferOverflow:        "STATUS_BUFFER_OVERFLOW",
	StatusDeviceBusy:            "STATUS_DEVICE_BUSY",
	StatusNoMoreEntries:         "STATUS_NO_MORE_ENTRIES",
	StatusAccessViolation:       "STATUS_ACCESS_VIOLATION",
	StatusInvalidParameter:      "STATUS_INVALID_PARAMETER",
	StatusInvalidDeviceRequest:  "STATUS_INVALID_DEVICE_REQUEST",
	StatusBufferTooSmall:        "STATUS_BUFFER_TOO_SMALL",
	StatusInvalidParameterMix:   "STATUS_INVALID_PARAMETER_MIX",
	StatusDataOverrun:           "STATUS_DATA_OVERRUN",
	StatusDataError:             "STATUS_DATA_ERROR",
	StatusSharingViolation:      "STATUS_SHARING_VIOLATION",
	StatusInsufficientResources: "STATUS_INSUFFICIENT_RESOURCES",
	StatusDeviceNotReady:        "STATUS_DEVICE_NOT_READY",
	StatusIOTimeout:             "STATUS_IO_TIMEOUT",
	StatusNotSupported:          "STATUS_NOT_SUPPORTED",
	StatusInternalError:         "STATUS_INTERNAL_ERROR",
	StatusCancelled:             "STATUS_CANCELLED",
	StatusRemoteResources:       "STATUS_REMOTE_RESOURCES",
	StatusInvalidAddress:        "STATUS_INVALID_ADDRESS",
	StatusInvalidDeviceState:    "STATUS_INVALID_DEVICE_STATE",
	StatusInvalidBufferSize:     "STATUS_INVALID_BUFFER_SIZE",
	StatusTooManyAddresses:      "STATUS_TOO_MANY_ADDRESSES",
	StatusAddressAlreadyExists:  "STATUS_ADDRESS_ALREADY_EXISTS",
	StatusConnectionRefused:     "STATUS_CONNECTION_REFUSED",
	StatusConnectionInvalid:     "STATUS_CONNECTION_INVALID",
	StatusConnectionActive:      "STATUS_CONNECTION_ACTIVE",
	StatusNetworkUnreachable:    "STATUS_NETWORK_UNREACHABLE",
	StatusHostUnreachable:       "STATUS_HOST_UNREACHABLE",
	StatusConnectionAborted:     "STATUS_CONNECTION_ABORTED",
	StatusDeviceRemoved:         "STATUS_DEVICE_REMOVED",
	StatusImplementationLimit:   "STATUS_IMPLEMENTATION_LIMIT",
	StatusBadVersion:            "NDIS_STATUS_BAD_VERSION",
	StatusAdapterNotReady:       "NDIS_STATUS_ADAPTER_NOT_READY",
	StatusInvalidLength:         "NDIS_STATUS_INVALID_LENGTH",
	StatusInvalidData:           "NDIS_STATUS_INVALID_DATA",
	StatusBufferTooShort:        "NDIS_STATUS_BUFFER_TOO_SHORT",
}

// String returns the status's name, or its code in hexadecimal.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("0x%08X", uint32(s))
}

// Error makes a Status an error.
func (s Status) Error() string { return s.String() }

// Succeeded is NT_SUCCESS: also StatusPending succeeds, warnings do not.
func (s Status) Succeeded() bool { return int32(s) >= 0 }
