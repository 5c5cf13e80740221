package chaos

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/gopacket/gopacket/pcapgo"
)

// checkCaptures wants the captures that the trial has made to be whole, whatever has
// happened to the lab, unless it was their writer that was killed or their disk that was full.
func (t *trial) checkCaptures() {
	switch t.fault.name {
	case "kill-recorder", "full-disk":
		return
	case "kill-command", "interrupt-twice", "interrupt-and-kill":
		if t.moment.name == "capture" {
			return
		}
	}
	for _, name := range []string{"wire.pcapng", "capture.pcapng"} {
		if err := readCapture(filepath.Join(t.dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// readCapture reads a capture to its end. One that was not begun is none.
func readCapture(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() == 0 {
		return err
	}
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	for err == nil {
		_, _, err = r.ReadPacketData()
	}
	if err == io.EOF {
		return nil
	}
	return err
}
