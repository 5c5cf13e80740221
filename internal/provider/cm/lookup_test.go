package cm

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// serve has a host have a datagram service on the port, with a status for those who ask.
func (h *host) serve(status *mad.SIDRStatus) {
	h.config.RefusesLookUp = func(local, _ netip.AddrPort) mad.SIDRStatus {
		if local.Port() != port {
			return mad.SIDRUnsupported
		}
		return *status
	}
}

func (h *host) lookUp(to *host, port uint16) ID {
	h.net.t.Helper()
	id, err := h.LookUp(h.net.now(), LookUpParams{
		Local: netip.AddrPortFrom(h.addr, 40000), Remote: netip.AddrPortFrom(to.addr, port), PrivateData: []byte("who is there"),
	})
	h.must(err)
	h.settle()
	return id
}

func (h *host) answerLookUp(id ID, a LookUpAnswer) error {
	err := h.AnswerLookUp(h.net.now(), id, a)
	h.settle()
	return err
}

// TestLookUpAsLinux puts an Endpoint in the place of either guest of a capture of udaddy. The transaction ID of the
// question is our own.
func TestLookUpAsLinux(t *testing.T) {
	c := capture(t, "ud-send")
	req, rep := decode[mad.SIDRREQ](t, c[0]), decode[mad.SIDRREP](t, c[1])
	service, ok := mad.DatagramServicePort(req.ServiceID)
	var ip mad.IPHeader
	if !ok || !ip.Decode(req.PrivateData[:]) || rep.QKey != mad.DatagramQKey {
		t.Fatalf("capture: %+v", req)
	}

	h := lone(t, c[0].source, 1, req.RequestID)
	id, err := h.LookUp(0, LookUpParams{
		Local: ip.Source, Remote: netip.AddrPortFrom(c[0].destination, service), PrivateData: req.PrivateData[mad.IPHeaderSize:],
	})
	h.must(err)
	h.settle()
	question := c[0]
	question.mad = append([]byte(nil), c[0].mad...)
	binary.BigEndian.PutUint64(question.mad[8:], establishTransaction|uint64(id))
	sameBytes(t, h, question)
	h.replay(c[1])
	diff(t, "answer", LookUpAnswered{ID: id, QPN: rep.QPN, QKey: rep.QKey, PrivateData: rep.PrivateData}, wait[LookUpAnswered](h))

	h = lone(t, c[0].destination, 1, 1)
	valid := mad.SIDRValid
	h.config.RefusesLookUp = func(local, remote netip.AddrPort) mad.SIDRStatus {
		if local != netip.AddrPortFrom(c[0].destination, service) || remote != ip.Source {
			t.Errorf("asked about %v and %v", local, remote)
		}
		return valid
	}
	h.replay(c[0])
	request := wait[LookUpRequest](h)
	h.must(h.answerLookUp(request.ID, LookUpAnswer{QPN: rep.QPN, QKey: rep.QKey, PrivateData: rep.PrivateData[:]}))
	sameBytes(t, h, c[1])
}

// TestLookUp asks over a bad network: one question, one request, one answer.
func TestLookUp(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNetwork(t, seed)
			n.loss, n.duplicate, n.jitter = 0.3, 0.3, 5*time.Millisecond
			asker, server := n.add("10.0.0.1"), n.add("10.0.0.2")
			valid := mad.SIDRValid
			server.serve(&valid)
			id := asker.lookUp(server, port)
			request := wait[LookUpRequest](server)
			if got := string(request.PrivateData[:12]); got != "who is there" || request.Remote.Port() != 40000 {
				t.Errorf("request %q from %v", got, request.Remote)
			}
			server.must(server.answerLookUp(request.ID, LookUpAnswer{QPN: 0x77, QKey: 5, PrivateData: []byte("me")}))
			if err := server.answerLookUp(request.ID, LookUpAnswer{}); err != ErrState {
				t.Errorf("a second answer: %v", err)
			}
			answer := wait[LookUpAnswered](asker)
			if answer.ID != id || answer.Status != mad.SIDRValid || answer.QPN != 0x77 || answer.QKey != 5 || string(answer.PrivateData[:2]) != "me" {
				t.Errorf("answer %+v", answer)
			}
			wait[TimewaitOver](asker)
			wait[TimewaitOver](server)
			n.empty()
			asker.none()
			server.none()
		})
	}
}

// TestLookUpRefused tries everything that is answered without the consumer.
func TestLookUpRefused(t *testing.T) {
	n, asker, server := pair(t)
	status := mad.SIDRNoQP
	asker.lookUp(server, port)
	if a := wait[LookUpAnswered](asker); a.Status != mad.SIDRUnsupported {
		t.Errorf("without services: %d", a.Status)
	}
	server.serve(&status)
	asker.lookUp(server, port+1)
	if a := wait[LookUpAnswered](asker); a.Status != mad.SIDRUnsupported {
		t.Errorf("another port: %d", a.Status)
	}
	asker.lookUp(server, port)
	if a := wait[LookUpAnswered](asker); a.Status != mad.SIDRNoQP {
		t.Errorf("refused: %d", a.Status)
	}
	status = mad.SIDRValid
	server.deliver(asker.addr, &mad.SIDRREQ{RequestID: 9, ServiceID: mad.DatagramServiceID(port)})
	if m := last[mad.SIDRREP](server); m.Status != mad.SIDRReject || m.RequestID != 9 {
		t.Errorf("without addresses: %+v", m)
	}
	status = LookUpIgnored
	sent := len(server.sent)
	asker.lookUp(server, port)
	wait[LookUpFailed](asker)
	if len(server.sent) != sent {
		t.Error("an ignored question was answered")
	}
	n.empty()
}

// TestLookUpAbandoned turns away from a question, asked and to be answered.
func TestLookUpAbandoned(t *testing.T) {
	n, asker, server := pair(t)
	valid := mad.SIDRValid
	server.serve(&valid)
	asker.lookUp(server, port)
	server.abandon(wait[LookUpRequest](server).ID)
	if a := wait[LookUpAnswered](asker); a.Status != mad.SIDRReject {
		t.Errorf("status %d", a.Status)
	}
	id := asker.lookUp(server, port)
	sent := len(asker.sent)
	asker.abandon(id)
	request := wait[LookUpRequest](server)
	server.must(server.answerLookUp(request.ID, LookUpAnswer{QPN: 5}))
	n.clock.Run(time.Minute)
	if len(asker.sent) != sent {
		t.Error("an abandoned question is repeated")
	}
	for _, size := range []int{181, 217} {
		if _, err := asker.LookUp(0, LookUpParams{Local: request.Local, Remote: request.Remote, PrivateData: make([]byte, size)}); err == nil {
			t.Errorf("%d bytes of private data fit", size)
		}
	}
	n.empty()
}
