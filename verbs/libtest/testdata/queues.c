/* Posting by writing to work queues in memory: what is written there, and that nothing is lost or overtaken, whenever the
 * engine ceases to look.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include "stub.h"

static struct stub *stub;

/* The engine of these tests takes requests under a lock, as a QP does. */
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sent, received; /* the wr_id that was taken last; guarded by taking */
static unsigned int called, rung;

static void take(struct engine_queue *queue, uint64_t *last)
{
	uint32_t put = __atomic_load_n(&queue->put, __ATOMIC_SEQ_CST);

	for (; queue->taken != put; __atomic_store_n(&queue->taken, queue->taken + 1, __ATOMIC_RELEASE)) {
		struct engine_wqe *wqe = &queue->wqes[queue->taken % ENGINE_WQES];

		CHECK(wqe->wr_id == *last + 1 && wqe->num_sge == 2 && wqe->sg_list[1].addr == wqe->wr_id);
		*last = wqe->wr_id;
	}
}

static void take_all(void)
{
	if (!stub->queues)
		return;
	take(&stub->queues->send, &sent);
	take(&stub->queues->recv, &received);
}

static void on_send(struct ibv_send_wr *wr)
{
	pthread_mutex_lock(&taking);
	take_all();
	called++;
	for (; wr; wr = wr->next) {
		CHECK(wr->wr_id == sent + 1);
		sent++;
	}
	pthread_mutex_unlock(&taking);
}

static void on_recv(struct ibv_recv_wr *wr)
{
	pthread_mutex_lock(&taking);
	take_all();
	called++;
	CHECK(wr->wr_id == received + 1);
	received++;
	pthread_mutex_unlock(&taking);
}

static void on_ring(void)
{
	pthread_mutex_lock(&taking);
	take_all();
	rung++;
	pthread_mutex_unlock(&taking);
}

/* Says whether the engine looks, and for how many entries there is room. */
static void watch(struct engine_queue *queue, bool watched, uint32_t room)
{
	pthread_mutex_lock(&taking);
	__atomic_store_n(&queue->most, queue->taken + room, __ATOMIC_RELAXED);
	__atomic_store_n(&queue->watched, watched, __ATOMIC_SEQ_CST);
	take_all();
	pthread_mutex_unlock(&taking);
}

static uint64_t posted_sends, posted_receives;

/* Posts a SEND with the next wr_id; change may be NULL. Returns whether it was written. */
static bool post_send(struct ibv_qp *qp, void (*change)(struct ibv_send_wr *wr))
{
	struct ibv_sge list[3] = { { 1, 2, 3 }, { posted_sends + 1, 4, 5 } };
	struct ibv_send_wr *bad, wr = { .wr_id = ++posted_sends, .opcode = IBV_WR_SEND, .sg_list = list, .num_sge = 2 };
	unsigned int before = called;

	if (change)
		change(&wr);
	CHECK(!qp->context->ops.post_send(qp, &wr, &bad));
	return called == before;
}

static bool post_receive(struct ibv_qp *qp)
{
	struct ibv_sge list[2] = { { 1, 2, 3 }, { posted_receives + 1, 4, 5 } };
	struct ibv_recv_wr *bad, wr = { .wr_id = ++posted_receives, .sg_list = list, .num_sge = 2 };
	unsigned int before = called;

	CHECK(!qp->context->ops.post_recv(qp, &wr, &bad));
	return called == before;
}

static void two_in_a_list(struct ibv_send_wr *wr)
{
	static struct ibv_send_wr second;

	second = *wr;
	second.wr_id = ++posted_sends;
	wr->next = &second;
}

static void read_of_memory(struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_READ;
}

static void of_inline_data(struct ibv_send_wr *wr)
{
	static char data[8];

	wr->sg_list[0] = (struct ibv_sge){ (uintptr_t)data, sizeof(data), 0 };
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_INLINE;
}

static void of_three_pieces(struct ibv_send_wr *wr)
{
	wr->num_sge = 3;
}

static void too_long(struct ibv_send_wr *wr)
{
	wr->sg_list[0].length = UINT32_MAX;
}

static struct ibv_qp *make_qp(struct ibv_context *context, enum ibv_qp_type type)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = { .max_send_wr = 1000, .max_recv_wr = 1000, .max_send_sge = 3, .max_recv_sge = 3 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp);
	return qp;
}

static void destroy(struct ibv_qp *qp)
{
	struct ibv_cq *cq = qp->send_cq;
	struct ibv_pd *pd = qp->pd;

	stub->queues = NULL;
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	posted_sends = posted_receives = sent = received = 0;
}

/* What is written, and what is posted by calls. */
static void check_written(struct ibv_context *context)
{
	void (*const calls[])(struct ibv_send_wr *) = { two_in_a_list, read_of_memory, of_inline_data, of_three_pieces, too_long };
	struct ibv_qp *qp = make_qp(context, IBV_QPT_RC);
	struct engine_queue *queue;
	struct engine_wqe *wqe;

	while (!stub->queues)
		CHECK(!post_send(qp, NULL) && posted_sends < 1000);
	queue = &stub->queues->send;
	CHECK(!post_send(qp, NULL)); /* nobody looks */
	watch(queue, true, 1000);
	wqe = &queue->wqes[queue->put % ENGINE_WQES];
	CHECK(post_send(qp, NULL) && queue->put == 1 && !rung);
	CHECK(wqe->opcode == IBV_WR_SEND && wqe->sg_list[0].addr == 1 && wqe->sg_list[0].length == 2 && wqe->sg_list[0].lkey == 3);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		CHECK(!post_send(qp, calls[i]));
	for (int i = 0; i < ENGINE_WQES; i++)
		CHECK(post_send(qp, NULL));
	CHECK(!post_send(qp, NULL)); /* the memory is full */
	watch(queue, true, 2);
	CHECK(post_send(qp, NULL) && post_send(qp, NULL));
	CHECK(!post_send(qp, NULL)); /* the QP is */
	CHECK(!post_receive(qp));
	watch(&stub->queues->recv, true, 1);
	CHECK(post_receive(qp) && !post_receive(qp));
	CHECK(sent == posted_sends && received == posted_receives);
	destroy(qp);
}

/* A datagram's QP has receives there alone. */
static void check_datagrams(struct ibv_context *context)
{
	struct ibv_qp *qp = make_qp(context, IBV_QPT_UD);

	for (int i = 0; i < 1000; i++)
		CHECK(!post_send(qp, NULL));
	CHECK(!stub->queues);
	while (!stub->queues)
		CHECK(!post_receive(qp) && posted_receives < 1000);
	watch(&stub->queues->recv, true, 1);
	CHECK(post_receive(qp));
	destroy(qp);
}

static int stopping; /* atomic */

/* An engine that looks now and then. */
static void *look(void *queues)
{
	struct engine_queues *of = queues;
	unsigned int seed = 1;

	while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED)) {
		watch(&of->send, rand_r(&seed) % 2, rand_r(&seed) % 100);
		watch(&of->recv, rand_r(&seed) % 2, rand_r(&seed) % 100);
	}
	return NULL;
}

/* Where nobody looks any more, everything has been taken. */
static void check_taken(const struct engine_queue *queue, uint64_t last, const uint64_t *taken)
{
	pthread_mutex_lock(&taking);
	CHECK(queue->watched || *taken == last);
	pthread_mutex_unlock(&taking);
}

/* Nothing stays behind where nobody looks, and all is in order. */
static void check_race(struct ibv_context *context)
{
	struct ibv_qp *qp = make_qp(context, IBV_QPT_RC);
	unsigned int written = 0;
	pthread_t thread;

	while (!stub->queues)
		post_send(qp, NULL);
	CHECK(!pthread_create(&thread, NULL, look, stub->queues));
	for (int i = 0; i < 100000; i++) {
		written += post_send(qp, NULL) + post_receive(qp);
		check_taken(&stub->queues->send, posted_sends, &sent);
		check_taken(&stub->queues->recv, posted_receives, &received);
	}
	__atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
	CHECK(!pthread_join(thread, NULL));
	watch(&stub->queues->send, false, 0);
	watch(&stub->queues->recv, false, 0);
	CHECK(sent == posted_sends && received == posted_receives && written);
	destroy(qp);
}

int main(void)
{
	struct ibv_context *context = open_one();

	stub = find_stub();
	stub->on_send = on_send;
	stub->on_recv = on_recv;
	stub->on_ring = on_ring;
	check_written(context);
	check_datagrams(context);
	check_race(context);
	CHECK(!ibv_close_device(context));
	CHECK(!stub->interruptible);
	return 0;
}
