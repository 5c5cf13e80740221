package rc

// Local operations stand in the send queue like other requests but make no
// packets: such a request has no sequence numbers, first equals end. The cursor
// performs it when it gets there, which is when every earlier request has been
// sent once and no later one has, so a SEND that follows a FastRegister tells
// the peer of a registration that is in effect (NDK-MR-28). It completes when
// everything before it has (NDK-CQ-37).
//
// When the cursor goes back it comes by again, and passes over what is
// performed. So a packet that is sent again must not find the memory gone that
// it was made of the first time. Binding and registering take nothing away.
// Invalidating does: it waits until every earlier request is complete, fenced
// or not, as in Linux (roce.md 6.2).
//
// One that fails stops the cursor, and ends the connection when it is the
// oldest request, like a request whose memory cannot be read.

func (op Op) isLocal() bool { return op >= OpBind && op <= OpInvalidate }

func (op Op) isAtomic() bool { return op >= OpFetchAdd && op <= OpAtomicWrite }

// IsReceive reports whether it is the kind of a receive's completion.
func (op Op) IsReceive() bool { return op >= OpReceive }

// isAnswered reports whether the peer answers with more than an acknowledgement, so that only
// that answer completes the request.
func (op Op) isAnswered() bool { return op >= OpRead && op <= OpAtomicWrite }

// nextRequest moves the cursor over local operations to the next request that makes packets,
// having performed those that were not. It returns that request, or an operation that
// has failed; nil if there is none, or an operation has to wait.
func (q *sendQueue) nextRequest() *request {
	for q.cursor < q.tail {
		w := q.slot(q.cursor)
		if !w.op.isLocal() {
			return w
		}
		if w.local != nil {
			if q.isFenced(w) || w.op == OpInvalidate && q.cursor > q.head {
				return nil
			}
			w.status = w.local.Perform()
			w.local = nil
		}
		if w.status != Success {
			return w
		}
		q.cursor++
		q.finishPerformed()
	}
	return nil
}

// finishPerformed completes the oldest requests as far as they are operations
// performed with success. So wherever anything is in flight, the oldest request
// is one that makes packets.
//
// A flush may come before: what was performed and still stood behind others
// completes Flushed like these, though its effect stays. Where the connection
// has ended, no more is promised of it than that.
func (q *sendQueue) finishPerformed() {
	for q.head < q.tail {
		w := q.oldest()
		if !w.op.isLocal() || w.local != nil || w.status != Success {
			return
		}
		q.finish(Success)
	}
}
