package ucm

import (
	"encoding/binary"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Options of an id: their level, and their names. Paths, the other level, are InfiniBand's.
const (
	levelID = 0

	optionTOS        = 0
	optionReuse      = 1
	optionFamilyOnly = 2
	optionAckTimeout = 3
)

func (r request) setOption() error {
	cmd, err := decoded[setOption](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if cmd.Level != levelID || cmd.Name > optionAckTimeout {
		return syscall.ENOSYS
	}
	value, err := r.optionValue(&cmd)
	if err != nil {
		return err
	}
	return i.set(cmd.Name, value)
}

// optionValue fetches the value of an option: a byte, or an int of which it matters whether it is 0.
func (r request) optionValue(cmd *setOption) (uint8, error) {
	size := 1
	if cmd.Name == optionReuse || cmd.Name == optionFamilyOnly {
		size = 4
	}
	if int(cmd.Length) != size {
		return 0, syscall.EINVAL
	}
	b := make([]byte, size)
	if r.channel.service.config.Memory.Read(cmd.Value, b) != nil {
		return 0, syscall.EFAULT
	}
	if size == 1 {
		return b[0], nil
	}
	return flag(binary.NativeEndian.Uint32(b) != 0), nil
}

// set sets an option: EINVAL where the id is past the state in which it can be.
func (i *id) set(name uint32, value uint8) error {
	o := &i.options
	switch name {
	case optionTOS:
		o.service = value
	case optionReuse:
		if i.state != idle && (value == 0 || i.state == listening) {
			return syscall.EINVAL
		}
		o.reuse = value != 0
	case optionFamilyOnly:
		if i.state != idle && i.state != bound {
			return syscall.EINVAL
		}
		o.familyOnly, o.familyOnlySet = value != 0, true
	case optionAckTimeout:
		if i.datagrams() || value > uint8(mad.MaxTimeout) {
			return syscall.EINVAL
		}
		o.ackTimeout, o.ackTimeoutSet = mad.Timeout(value), true
	}
	return nil
}
