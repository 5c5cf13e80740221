package watch

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/trace"
	"github.com/ndklab/ndklab/topology"
)

// record captures a link at both ends, of which one is given, since the end that sends a packet knows what became of it. Where an
// end is not to be captured, such as a port of a switch that has a buffer, the other end has to do.
func record(ctx context.Context, l *lab.Lab, endpoint string, began func(), add func(*trace.Packet)) error {
	links, err := l.Links.Inspect(ctx, endpoint)
	if err != nil {
		return err
	}
	ends := links[0].Endpoints
	other := ends[0]
	if other == endpoint {
		other = ends[1]
	}
	begun := false
	started := func() { begun = true; began() }
	var first error
	for _, interfaces := range [][]string{{endpoint, other}, {endpoint}, {other}} {
		err := recordAt(ctx, l, interfaces, ends, started, add)
		if begun || ctx.Err() != nil {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// recordAt captures a link at some of its ends.
func recordAt(ctx context.Context, l *lab.Lab, interfaces []string, ends [2]string, began func(), add func(*trace.Packet)) error {
	recording := lab.Recording{Capture: topology.Capture{Snaplen: trace.KeptLength}, Began: began}
	for _, name := range interfaces {
		node, iface, _ := strings.Cut(name, ":")
		recording.Interfaces = append(recording.Interfaces, topology.Endpoint{Node: node, Interface: iface})
	}
	out, in := io.Pipe()
	recording.Stream = in
	read := make(chan error, 1)
	go func() {
		err := readPackets(out, ends, len(interfaces) == 2, add)
		out.CloseWithError(err) // whoever writes gets to know
		read <- err
	}()
	_, err := l.Record(ctx, recording)
	in.Close()
	return errors.Join(err, <-read)
}

// readPackets reads the pcapng of a capture of a link, until its end. If both ends of the link are captured, a packet is taken from the
// end that sent it.
func readPackets(r io.Reader, ends [2]string, both bool, add func(*trace.Packet)) error {
	file, err := pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
	if errors.Is(err, io.EOF) {
		return nil // the capture did not begin
	}
	if err != nil {
		return err
	}
	for {
		frame, info, options, err := file.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		iface, err := file.Interface(info.InterfaceIndex)
		if err != nil {
			return err
		}
		at := slices.Index(ends[:], iface.Name)
		p := trace.Packet{
			Stamp: info.Timestamp.UnixNano(), From: iface.Name, Size: info.Length, Frame: frame, Comment: strings.Join(options.Comments, "; "),
			Arrived: options.Flags != nil && options.Flags.Direction == pcapgo.NgEpbFlagDirectionInbound,
		}
		if p.Arrived {
			if both || at < 0 {
				continue
			}
			p.From = ends[1-at]
		}
		add(&p)
	}
}
