package trace

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// describe says what a RoCEv2 packet has beside opcode, PSN and destination QP.
func (d *decoder) describe() string {
	parts := d.describeHeaders()
	h := &d.header
	if h.Solicited {
		parts = append(parts, "solicited")
	}
	if h.AckReq {
		parts = append(parts, "asks for an acknowledgement")
	}
	if !h.InDefaultPartition() {
		parts = append(parts, fmt.Sprintf("partition 0x%04x", h.PKey))
	}
	if roce.IsCE(d.class) {
		parts = append(parts, "CE")
	}
	return strings.Join(parts, ", ")
}

// describeHeaders describes the extended headers and the payload (roce.md 2.2).
func (d *decoder) describeHeaders() (parts []string) {
	h := &d.header
	add := func(format string, values ...any) { parts = append(parts, fmt.Sprintf(format, values...)) }
	switch op := h.Opcode; {
	case op == roce.CNP:
		add("congestion was met by packets from the QP")
		return parts
	case op == roce.SelectiveAcknowledge:
		add("NAK: the PSN is missing, %s", describeSelective(h))
		return parts
	case op == roce.UDSendOnly || op == roce.UDSendOnlyImm:
		if h.DestQPN == 1 && len(d.start) >= 18 {
			add("connection management: %v", mad.Attribute(binary.BigEndian.Uint16(d.start[16:])))
		}
		add("%s from QP %d", count(d.payload), h.SourceQPN)
	case op == roce.ReadRequest:
		add("asks for %s at 0x%x, key 0x%x", count(int(h.DMALength)), h.VA, h.RKey)
	case op == roce.CompareSwap:
		add("at 0x%x, key 0x%x: %d takes the place of %d", h.VA, h.RKey, h.SwapAdd, h.Compare)
	case op == roce.FetchAdd:
		add("at 0x%x, key 0x%x: adds %d", h.VA, h.RKey, h.SwapAdd)
	case op.HasRETH():
		add("%s of %d to 0x%x, key 0x%x", count(d.payload), h.DMALength, h.VA, h.RKey)
	case op.OnlyAcknowledges():
	default:
		if d.payload > 0 || op.IsSend() || op.IsReadResponse() {
			add("%s", count(d.payload))
		}
	}
	if h.Opcode.HasAETH() {
		add("%v", h.Syndrome)
		add("MSN %d", h.MSN)
	}
	if h.Opcode == roce.AtomicAcknowledge {
		add("it was %d", h.Original)
	}
	if h.Opcode.HasImmediate() {
		add("immediate 0x%x", h.Immediate)
	}
	if h.Opcode.HasInvalidate() {
		add("invalidates key 0x%x", h.InvalidateKey)
	}
	return parts
}

// describeSelective says what has arrived behind the packet that is missing.
func describeSelective(h *roce.Header) string {
	if n := bits.OnesCount64(h.Original); n > 0 {
		return fmt.Sprintf("PSN %d and %d before it have arrived", h.MSN, n)
	}
	return fmt.Sprintf("PSN %d has arrived", h.MSN)
}

// count returns a number of bytes in words.
func count(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}
