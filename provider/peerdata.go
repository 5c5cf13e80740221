package provider

import "bytes"

// peerData is the private data that a message of the peer's had for the consumer. The manager's lock guards it.
type peerData struct {
	bytes []byte // without the zeros at the end
	size  int    // bytes that the message has room for; 0: there was none
}

func (p *peerData) set(data []byte) {
	p.bytes, p.size = bytes.Clone(bytes.TrimRight(data, "\x00")), len(data)
}

// give answers GetConnectionData.
func (p *peerData) give(buffer []byte, length *uint32) Status {
	given := *length
	*length = uint32(p.size)
	switch {
	case buffer == nil && given == 0:
		return StatusSuccess
	case buffer == nil || int(given) > len(buffer):
		return StatusInvalidParameter
	}
	room := buffer[:min(int(given), p.size)]
	clear(room[copy(room, p.bytes):])
	if len(room) < p.size {
		return StatusBufferTooSmall
	}
	return StatusSuccess
}
