package linkem

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// A port is one interface of an attached link.
type port struct {
	name  string
	fd    int
	line  *line         // which takes what arrives here
	empty time.Duration // an instant by which all that had arrived was taken
	other *watch        // of the other interface, while the link changes hands
	first int64         // when the first frame arrived, ns of the wall clock; 0: none has
}

// Sizes to ask for, bytes: bursts of tens of milliseconds. Without privilege
// the kernel grants less.
const (
	receiveBuffer = 32 << 20
	sendBuffer    = 8 << 20
)

// openPort opens an interface and, if other is the name of one, watches that.
// It is slow and therefore not for the loop's thread, as is close: the kernel
// waits until no processor can be delivering to a socket that is closed.
func openPort(name, other string) (*port, error) {
	p := &port{name: name, fd: -1}
	if err := p.open(other); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *port) open(other string) (err error) {
	if other != "" { // first, so that the watch misses nothing of what the port sees
		if p.other, err = openWatch(other); err != nil {
			return err
		}
	}
	if p.fd, err = frame.Open(p.name, false, receiveBuffer); err != nil {
		return err
	}
	// Past the qdisc and the taps: faster, and a watch does not see these frames.
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("packet socket on %s: PACKET_QDISC_BYPASS: %w", p.name, err)
	}
	if unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err != nil {
		return fmt.Errorf("packet socket on %s: SO_SNDBUF: %w", p.name, err)
	}
	return nil
}

func (p *port) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
	if p.other != nil {
		p.other.close()
	}
}

// running reports whether the interface could send at all.
func (p *port) running() bool {
	request, err := unix.NewIfreq(p.name)
	if err != nil {
		return false
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFFLAGS, request); err != nil {
		return false
	}
	const need = unix.IFF_UP | unix.IFF_RUNNING
	return request.Uint16()&need == need
}

// forgetOverruns has frames not be counted that the kernel forwarded, though the port had no room for them.
func (p *port) forgetOverruns() error {
	if _, err := frame.Overruns(p.fd); err != nil {
		return fmt.Errorf("interface %s: %w", p.name, err)
	}
	return nil
}

// countOverruns adds what the kernel had no room for to the line's account.
func (p *port) countOverruns() error {
	n, err := frame.Overruns(p.fd)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.name, err)
	}
	p.line.stats.Counts.Packets += n
	p.line.stats.Counts.LostOverrun += n
	return nil
}
