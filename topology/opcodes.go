package topology

import (
	"fmt"
	"slices"
	"strings"
)

// This file has the parts of RoCEv2 that a fault can match by name. The numbers are those
// of roce.md 2.3, 3 and 10.1; a test holds them to those that the adapters use.

// udSendOnly is the opcode of CM messages.
const udSendOnly = 0x64

// An opcode is a BTH opcode, which a fault can match by its name or, with
// others, by its class.
type opcode struct {
	code        uint8
	name, class string
}

var opcodes = [...]opcode{
	{0x00, "SEND_FIRST", "send"},
	{0x01, "SEND_MIDDLE", "send"},
	{0x02, "SEND_LAST", "send"},
	{0x03, "SEND_LAST_IMMEDIATE", "send"},
	{0x04, "SEND_ONLY", "send"},
	{0x05, "SEND_ONLY_IMMEDIATE", "send"},
	{0x06, "WRITE_FIRST", "write"},
	{0x07, "WRITE_MIDDLE", "write"},
	{0x08, "WRITE_LAST", "write"},
	{0x09, "WRITE_LAST_IMMEDIATE", "write"},
	{0x0A, "WRITE_ONLY", "write"},
	{0x0B, "WRITE_ONLY_IMMEDIATE", "write"},
	{0x0C, "READ_REQUEST", "read"},
	{0x0D, "READ_RESPONSE_FIRST", "read-response"},
	{0x0E, "READ_RESPONSE_MIDDLE", "read-response"},
	{0x0F, "READ_RESPONSE_LAST", "read-response"},
	{0x10, "READ_RESPONSE_ONLY", "read-response"},
	{0x11, "ACKNOWLEDGE", "ack"},
	{0x12, "ATOMIC_ACKNOWLEDGE", "ack"},
	{0x13, "COMPARE_SWAP", "atomic"},
	{0x14, "FETCH_ADD", "atomic"},
	{0x16, "SEND_LAST_INVALIDATE", "send"},
	{0x17, "SEND_ONLY_INVALIDATE", "send"},
	{0x1C, "FLUSH", "flush"},
	{0x1D, "ATOMIC_WRITE", "atomic"},
	{0x20, "UC_SEND_FIRST", "send"},
	{0x21, "UC_SEND_MIDDLE", "send"},
	{0x22, "UC_SEND_LAST", "send"},
	{0x23, "UC_SEND_LAST_IMMEDIATE", "send"},
	{0x24, "UC_SEND_ONLY", "send"},
	{0x25, "UC_SEND_ONLY_IMMEDIATE", "send"},
	{0x26, "UC_WRITE_FIRST", "write"},
	{0x27, "UC_WRITE_MIDDLE", "write"},
	{0x28, "UC_WRITE_LAST", "write"},
	{0x29, "UC_WRITE_LAST_IMMEDIATE", "write"},
	{0x2A, "UC_WRITE_ONLY", "write"},
	{0x2B, "UC_WRITE_ONLY_IMMEDIATE", "write"},
	{udSendOnly, "UD_SEND_ONLY", "ud"},
	{0x65, "UD_SEND_ONLY_IMMEDIATE", "ud"},
	{0x81, "CNP", "cnp"},
	{0xD1, "SELECTIVE_ACKNOWLEDGE", "ack"},
}

// opcodesNamed is the opcodes that a word of a file stands for: a class, a name,
// or a number. Names are also taken in the spelling of others, such as
// "RC RDMA WRITE First".
func opcodesNamed(word string) []uint8 {
	var found []uint8
	for _, o := range opcodes {
		if o.class == word || o.name == canonical(word) {
			found = append(found, o.code)
		}
	}
	if n, err := identifier(0xff).parse(word); err == nil {
		found = append(found, uint8(n))
	}
	return found
}

// isAcknowledgement reports whether packets of an opcode do nothing but answer.
func isAcknowledgement(code uint8) bool {
	return slices.ContainsFunc(opcodes[:], func(o opcode) bool { return o.code == code && o.class == "ack" })
}

// canonical is the name of an opcode without what others add to it.
func canonical(name string) string {
	name = strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToUpper(name))
	name = strings.TrimPrefix(name, "RC_")
	name = strings.Replace(name, "RDMA_", "", 1)
	return strings.Replace(name, "_WITH_", "_", 1)
}

// opcodeWords is the classes and names, classes first, without repetition.
func opcodeWords() []string {
	var classes, names []string
	for _, o := range opcodes {
		if !slices.Contains(classes, o.class) {
			classes = append(classes, o.class)
		}
		names = append(names, o.name)
	}
	return append(classes, names...)
}

// formatOpcodes is the words that stand for the codes, which are ascending.
func formatOpcodes(codes []uint8) []string {
	var words []string
	written := make(map[uint8]bool)
	for _, code := range codes {
		if written[code] {
			continue
		}
		i := slices.IndexFunc(opcodes[:], func(o opcode) bool { return o.code == code })
		if i < 0 {
			words = append(words, fmt.Sprintf("0x%02x", code))
			continue
		}
		class := opcodesNamed(opcodes[i].class)
		if slices.ContainsFunc(class, func(c uint8) bool { return !slices.Contains(codes, c) }) {
			words = append(words, opcodes[i].name)
			continue
		}
		words = append(words, opcodes[i].class)
		for _, c := range class {
			written[c] = true
		}
	}
	return words
}

// syndromes are the kinds of acknowledgements (roce.md 2.3).
var syndromes = []string{"ack", "nak", "rnr"}

// messages are the messages of connection management, from attribute ID
// firstMessage on.
var messages = [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}

const firstMessage = 0x0010

// messageNamed is the attribute ID of a message by its name, or by the ID itself.
func messageNamed(word string) (uint16, bool) {
	if i := slices.Index(messages[:], strings.ToUpper(word)); i >= 0 {
		return firstMessage + uint16(i), true
	}
	n, err := identifier(0xffff).parse(word)
	return uint16(n), err == nil
}

// formatMessage is the name of the message, or its attribute ID if it has none.
func formatMessage(id uint16) string {
	if i := int(id) - firstMessage; i >= 0 && i < len(messages) {
		return messages[i]
	}
	return fmt.Sprintf("0x%04x", id)
}
