package provider

import "github.com/ndklab/ndklab/internal/provider/roce/mad"

// Two of our own devices find each other by the ECE of REQ and REP, which
// consumers do not see and foreign peers let pass: the active side offers what it
// can do beyond the protocol, and the passive side agrees. All there is, is
// rc.Connection.Selective.

// vendorID is ours: a locally administered OUI.
const vendorID = 0x026E64

// The consent is another value than the offer, since a peer may send back what
// it does not understand.
var (
	offered  = mad.ECE{Vendor: vendorID, Options: 1}
	agreedTo = mad.ECE{Vendor: vendorID, Options: 1 | 1<<31}
)

// extensionAnswer returns what the passive side says to an offer.
func extensionAnswer(agreed bool) mad.ECE {
	if agreed {
		return agreedTo
	}
	return mad.ECE{}
}
