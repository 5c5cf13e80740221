/* Posting to work queues in memory (engine.h), of QPs that are posted to again and again: a call of the engine costs more
 * than the rest that is done for a short message.
 */
#include <stdlib.h>
#include "lib.h"

/* Every QP is posted to by calls until it has been this often. */
#define OFTEN 64

/* The longest message, bytes. */
#define LONGEST (1u << 31)

static const uint32_t plain = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_RDMA_WRITE |
			      1u << IBV_WR_RDMA_WRITE_WITH_IMM;

/* Gives a QP its queues. Without memory for them it goes on as it was. */
static void make_queues(struct qp *qp)
{
	struct context *context = to_context(qp->qp.context);
	struct engine_queues *queues = calloc(1, sizeof(*queues));

	if (!queues)
		return;
	if (CALL_ENGINE(context->engine, use_queues, qp->handle, queues))
		free(queues);
	else
		__atomic_store_n(&qp->queues, queues, __ATOMIC_RELEASE);
}

/* The queues of a QP that has some. */
static struct engine_queues *queues_of(struct qp *qp)
{
	struct engine_queues *queues = __atomic_load_n(&qp->queues, __ATOMIC_ACQUIRE);

	if (queues || !to_context(qp->qp.context)->engine->use_queues)
		return queues;
	if (__atomic_add_fetch(&qp->posts, 1, __ATOMIC_RELAXED) == OFTEN)
		make_queues(qp);
	return NULL;
}

/* The entry to be written next, or NULL where there is no room, or nobody looks. The queue's lock is held. */
static struct engine_wqe *reserve(struct engine_queue *queue)
{
	if (!__atomic_load_n(&queue->watched, __ATOMIC_ACQUIRE) ||
	    queue->put - __atomic_load_n(&queue->taken, __ATOMIC_ACQUIRE) == ENGINE_WQES ||
	    queue->put == __atomic_load_n(&queue->most, __ATOMIC_RELAXED))
		return NULL;
	return &queue->wqes[queue->put % ENGINE_WQES];
}

/* Has the engine take the entry that was reserved: it looks by itself, or has ceased to and is to be rung for. */
static bool commit(struct engine_queue *queue)
{
	__atomic_store_n(&queue->put, queue->put + 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&queue->watched, __ATOMIC_SEQ_CST);
}

static void set_list(struct engine_wqe *wqe, const struct ibv_sge *list, int count)
{
	wqe->num_sge = count;
	for (int i = 0; i < count; i++)
		wqe->sg_list[i] = list[i];
}

static void ring(struct qp *qp)
{
	CALL_ENGINE(to_context(qp->qp.context)->engine, ring, qp->handle);
}

/* The bytes of a list that may be written to a queue, or more than LONGEST. */
static uint64_t length_of(const struct ibv_sge *list, int count)
{
	uint64_t length = 0;

	for (int i = 0; i < count; i++)
		length += list[i].length;
	return length;
}

/* Whether a request may be written: what posting could refuse is posted by a call. */
static bool is_plain(const struct qp *qp, const struct ibv_send_wr *wr)
{
	return !wr->next && (unsigned int)wr->opcode < 32 && (plain & 1u << wr->opcode) &&
	       !(wr->send_flags & ~(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE)) && wr->num_sge >= 0 &&
	       wr->num_sge <= ENGINE_SGES && (uint32_t)wr->num_sge <= qp->cap.max_send_sge &&
	       length_of(wr->sg_list, wr->num_sge) <= LONGEST;
}

bool write_send(struct qp *qp, const struct ibv_send_wr *wr)
{
	struct engine_queues *queues;
	struct engine_wqe *wqe;
	bool watched = true;

	if (qp->qp.qp_type != IBV_QPT_RC)
		return false;
	queues = queues_of(qp);
	if (!queues || !is_plain(qp, wr))
		return false;
	pthread_mutex_lock(&qp->sending);
	wqe = reserve(&queues->send);
	if (wqe) {
		wqe->wr_id = wr->wr_id;
		wqe->opcode = wr->opcode;
		wqe->send_flags = wr->send_flags;
		wqe->imm_data = wr->imm_data;
		wqe->rkey = wr->wr.rdma.rkey;
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		set_list(wqe, wr->sg_list, wr->num_sge);
		watched = commit(&queues->send);
	}
	pthread_mutex_unlock(&qp->sending);
	if (!watched)
		ring(qp);
	return wqe;
}

bool write_recv(struct qp *qp, const struct ibv_recv_wr *wr)
{
	struct engine_queues *queues;
	struct engine_wqe *wqe;
	bool watched = true;

	if (qp->qp.srq)
		return false;
	queues = queues_of(qp);
	if (!queues || wr->next || wr->num_sge < 0 || wr->num_sge > ENGINE_SGES ||
	    (uint32_t)wr->num_sge > qp->cap.max_recv_sge)
		return false;
	pthread_mutex_lock(&qp->receiving);
	wqe = reserve(&queues->recv);
	if (wqe) {
		wqe->wr_id = wr->wr_id;
		set_list(wqe, wr->sg_list, wr->num_sge);
		watched = commit(&queues->recv);
	}
	pthread_mutex_unlock(&qp->receiving);
	if (!watched)
		ring(qp);
	return wqe;
}
