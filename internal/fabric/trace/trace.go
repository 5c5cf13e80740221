// Package trace shows captured packets to people: as rows of a table, each with what became of the packet and a line that says
// what is in it, and as the sequence of a queue pair, PSNs over time, as tcptrace draws those of TCP.
//
// It is pure: who captures brings packets (package trace/watch, for one). The JSON of the types is what the page of `ndklab ui`
// reads. Only programs that show things link it, since gopacket is large.
//
// Start reading at Ring.
package trace

// A Packet is as a capture has it (package capture).
type Packet struct {
	Stamp   int64  // when its sender's interface had it, ns since 1970
	From    string // the interface that sent it, as node:interface
	Arrived bool   // it was captured where it came in, so that it was not lost
	Size    int    // bytes from the Ethernet header on
	Comment string // what became of it, as captures say it
	Frame   []byte // the beginning of it, from the Ethernet header on
}

// KeptLength bounds the bytes of a packet that are kept: the headers of any RoCEv2 packet, and the header of a datagram of connection
// management.
const KeptLength = 128

// kept is a Packet in a Ring.
type kept struct {
	Packet
	bytes [KeptLength]byte // of which Frame is the beginning
}

// A Ring has the last packets of a link. It is for one goroutine at a time.
type Ring struct {
	packets []kept
	next    int // where the next one is put
}

// NewRing makes a Ring of so many packets, at least one.
func NewRing(size int) *Ring { return &Ring{packets: make([]kept, 0, size)} }

// Add adds a packet, which is younger than those before, and copies what it needs of its frame.
func (r *Ring) Add(p *Packet) {
	if len(r.packets) < cap(r.packets) {
		r.packets = r.packets[:len(r.packets)+1]
	}
	k := &r.packets[r.next]
	k.Packet = *p
	k.Frame = k.bytes[:copy(k.bytes[:], p.Frame)]
	r.next = (r.next + 1) % cap(r.packets)
}

// all calls f with each packet, from the oldest on, but for the first skipped.
func (r *Ring) all(skipped int, f func(*Packet)) {
	oldest := 0
	if len(r.packets) == cap(r.packets) {
		oldest = r.next
	}
	for i := skipped; i < len(r.packets); i++ {
		f(&r.packets[(oldest+i)%len(r.packets)].Packet)
	}
}

// A Row describes a packet. PSN and QP are there if it is a RoCEv2 packet that can be decoded.
type Row struct {
	At          float64  `json:"at"` // seconds since an instant that the caller of Rows chose
	From        string   `json:"from"`
	Source      string   `json:"source,omitempty"` // address of IP or ARP
	Destination string   `json:"destination,omitempty"`
	Size        int      `json:"size"` // bytes from the Ethernet header on
	Fate        Fate     `json:"fate"`
	Cause       string   `json:"cause,omitempty"` // of a drop, as captures say it: "loss", "queue full", "fault 1"
	Done        []string `json:"done,omitempty"`  // what was done to it: "marked", "duplicated", "corrupted", "reordered", "fault 1", "postponed by 5ms"
	Delay       *float64 `json:"delay"`           // one way, microseconds; null: not known
	Opcode      string   `json:"opcode,omitempty"`
	PSN         *uint32  `json:"psn,omitempty"`
	QP          *uint32  `json:"qp,omitempty"` // at the destination
	Text        string   `json:"text"`         // the rest of it, in a line
}

// Rows returns the last n packets, the oldest first. Times are since an instant in ns since 1970.
func (r *Ring) Rows(n int, since int64) []Row {
	d := newDecoder()
	rows := []Row{} // JSON has no null in place of it
	r.all(max(0, len(r.packets)-n), func(p *Packet) { rows = append(rows, d.row(p, since)) })
	return rows
}

func (d *decoder) row(p *Packet, since int64) Row {
	row := Row{At: seconds(p.Stamp, since), From: p.From, Size: p.Size}
	row.Fate, row.Cause, row.Done, row.Delay = parseComment(p)
	d.decode(p)
	if d.source.IsValid() {
		row.Source, row.Destination = d.source.String(), d.destination.String()
	}
	if d.roce {
		psn, qp := d.header.PSN, d.header.DestQPN
		row.Opcode, row.PSN, row.QP = d.header.Opcode.String(), &psn, &qp
		row.Text = d.describe()
	} else {
		row.Text = d.describeOther(p)
	}
	return row
}

// seconds returns the time from one instant to another, both in ns since 1970.
func seconds(at, since int64) float64 { return float64(at-since) / 1e9 }
