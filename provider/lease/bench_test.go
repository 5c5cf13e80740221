package lease

import (
	"testing"

	"github.com/ndklab/ndklab/provider/udp"
)

// BenchmarkOpen is opening and closing the device in a process.
func BenchmarkOpen(b *testing.B) {
	carrier, err := udp.Open(udp.Config{Addresses: ours, ReceiveBuffer: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	s, err := Serve(config(1), carrier)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		s.Device().Close()
	}()
	for b.Loop() {
		device, err := Open(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		device.Close()
		b.StartTimer()
	}
}
