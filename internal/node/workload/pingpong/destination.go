package pingpong

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
)

// A destination holds what one end tells the other over TCP.
type destination struct {
	lid uint16 // means nothing in RoCE
	qpn uint32
	psn uint32     // with which it begins to send; in connection management the receiver says that
	gid netip.Addr // no IPv4-mapped one
}

// destinationLen is the length of a destination on the wire: text of fixed width
// and a NUL.
const destinationLen = len("0000:000000:000000:00000000000000000000000000000000") + 1

// done is the client's last message.
const done = "done\x00"

// String returns the destination as ibv_rc_pingpong prints it.
func (d destination) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", d.lid, d.qpn, d.psn, netip.AddrFrom16(d.gid.As16()))
}

// write sends the destination in one piece, as ibv_rc_pingpong reads it in one.
func (d destination) write(w io.Writer) error {
	_, err := w.Write(fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", d.lid, d.qpn, d.psn, d.gid.As16()))
	return err
}

func writeDone(w io.Writer) error {
	_, err := io.WriteString(w, done)
	return err
}

func readDestination(r io.Reader) (destination, error) {
	var b [destinationLen]byte
	if err := readFull(r, b[:]); err != nil {
		return destination{}, err
	}
	d, err := parseDestination(string(b[:]))
	if err != nil {
		return destination{}, fmt.Errorf("%q is not what ibv_rc_pingpong says: %w", b, err)
	}
	return d, nil
}

func readDone(r io.Reader) error {
	var b [len(done)]byte
	if err := readFull(r, b[:]); err != nil {
		return err
	}
	if string(b[:]) != done {
		return fmt.Errorf("%q is not what ibv_rc_pingpong says: expected %q", b, done)
	}
	return nil
}

// readFull fills b, and says how far it came.
func readFull(r io.Reader, b []byte) error {
	n, err := io.ReadFull(r, b)
	var timeout net.Error
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the peer has closed the TCP connection after %d of %d bytes", n, len(b))
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the peer has said %d of %d bytes over TCP: %w", n, len(b), errSilent)
	}
	return err
}

func parseDestination(s string) (d destination, err error) {
	const colons, nul = ":", "\x00"
	if len(s) != destinationLen || s[4:5] != colons || s[11:12] != colons || s[18:19] != colons || s[51:] != nul {
		return d, errors.New("expected LID:QPN:PSN:GID")
	}
	lid, lidErr := strconv.ParseUint(s[:4], 16, 16)
	qpn, qpnErr := strconv.ParseUint(s[5:11], 16, 24)
	psn, psnErr := strconv.ParseUint(s[12:18], 16, 24)
	gid, gidErr := hex.DecodeString(s[19:51])
	if err := errors.Join(lidErr, qpnErr, psnErr, gidErr); err != nil {
		return d, errors.New("expected hexadecimal digits")
	}
	return destination{uint16(lid), uint32(qpn), uint32(psn), netip.AddrFrom16([16]byte(gid)).Unmap()}, nil
}
