/* The data path: posting work requests, polling and arming completion queues. Signals are blocked for an engine in this
 * process alone: another has no goroutine here that a handler could run on. */
#include <errno.h>
#include "lib.h"

#define CALL_DATA(context, function, ...)                                                                 \
	(to_context(context)->apart ? to_context(context)->engine->function(__VA_ARGS__) :               \
				      CALL(context, function, __VA_ARGS__))

/* The same with a lock held under which requests are written to the queues, too: so nobody writes to one while the engine
 * posts there, and takes room that the writer was promised. */
#define CALL_POST(lock, context, function, ...)                                               \
	({                                                                                    \
		pthread_mutex_t *lock_ = to_context(context)->apart ? NULL : (lock);          \
		if (lock_)                                                                    \
			pthread_mutex_lock(lock_);                                            \
		int posted_ = CALL_DATA(context, function, __VA_ARGS__);                      \
		if (lock_)                                                                    \
			pthread_mutex_unlock(lock_);                                          \
		posted_;                                                                      \
	})

/* The number of completions, or -errno, of which the manual page promises only that it is negative. */
int poll_cq_at(struct ibv_cq *cq, int count, struct ibv_wc *wc, uint64_t *at)
{
	int status = check_context(cq->context);

	return status ? -status : CALL_DATA(cq->context, poll_cq, to_cq(cq)->handle, count, wc, at);
}

int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	return poll_cq_at(cq, count, wc, NULL);
}

int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int status = check_context(cq->context);

	return status ? status : CALL_DATA(cq->context, req_notify_cq, to_cq(cq)->handle, solicited_only);
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int status = check_context(qp->context);

	if (!status && write_send(to_qp(qp), wr))
		return 0;
	if (!status)
		return CALL_POST(&to_qp(qp)->sending, qp->context, post_send, to_qp(qp)->handle, wr, bad);
	*bad = wr;
	return status;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int status = check_context(qp->context);

	if (!status && write_recv(to_qp(qp), wr))
		return 0;
	if (!status)
		return CALL_POST(&to_qp(qp)->receiving, qp->context, post_recv, to_qp(qp)->handle, wr, bad);
	*bad = wr;
	return status;
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int status = check_context(srq->context);

	if (!status)
		return CALL_DATA(srq->context, post_srq_recv, to_srq(srq)->handle, wr, bad);
	*bad = wr;
	return status;
}
