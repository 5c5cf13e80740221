/* The ring of posts: work requests go from it to the engine. What the engine refuses is told by a completion, since
 * the program has been told that it is posted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "rnic.h"

struct qp {
	uint64_t handle;
	uint64_t send_cq;
	uint32_t number;
	struct qp *next;
};

#define LISTS 1024

static struct remote_posts *posts;
static struct qp *qps[LISTS];

int map_posts(int memory)
{
	posts = mmap(NULL, sizeof(*posts), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	return posts == MAP_FAILED ? errno : 0;
}

void wake_pollers(uint32_t completions)
{
	__atomic_add_fetch(&posts->completed, completions, __ATOMIC_SEQ_CST);
	if (__atomic_exchange_n(&posts->awaited, 0, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &posts->completed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct qp **find(uint64_t handle)
{
	struct qp **at = &qps[handle % LISTS];

	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	return at;
}

int note_qp(uint64_t handle, uint32_t number, uint64_t send_cq)
{
	struct qp *qp = calloc(1, sizeof(*qp)), **at = find(handle);

	if (!qp)
		return ENOMEM;
	*qp = (struct qp){ .handle = handle, .send_cq = send_cq, .number = number };
	*at = qp;
	return 0;
}

void forget_qp(uint64_t handle)
{
	struct qp **at = find(handle), *qp = *at;

	if (qp) {
		*at = qp->next;
		free(qp);
	}
}

static void refuse(const struct remote_post *post)
{
	struct ibv_wc wc = { .wr_id = post->wr.wr_id, .status = IBV_WC_LOC_QP_OP_ERR };
	struct qp *qp = *find(post->object);

	if (!qp)
		return;
	wc.qp_num = qp->number;
	add_completion(qp->send_cq, &wc);
}

/* Work requests for one queue, to be posted together. */
#define MOST 32

static struct {
	int count;
	const struct remote_post *from[MOST];
	struct ibv_sge inlined[MOST];
	struct ibv_ah ah[MOST];
	struct ibv_send_wr send[MOST];
	struct ibv_recv_wr recv[MOST];
} batch;

static void add_send(int i, const struct remote_post *post)
{
	struct ibv_send_wr *wr = &batch.send[i];

	*wr = post->wr;
	wr->next = NULL;
	wr->sg_list = (struct ibv_sge *)(post + 1);
	if ((wr->send_flags & IBV_SEND_INLINE) && wr->num_sge) {
		batch.inlined[i] = (struct ibv_sge){ .addr = (uintptr_t)(post + 1), .length = post->inline_size };
		wr->sg_list = &batch.inlined[i];
		wr->num_sge = 1;
	}
	if (post->ah) {
		batch.ah[i].handle = post->ah;
		wr->wr.ud.ah = &batch.ah[i];
	}
	if (i)
		batch.send[i - 1].next = wr;
}

static void add_receive(int i, const struct remote_post *post)
{
	batch.recv[i] = (struct ibv_recv_wr){
		.wr_id = post->wr.wr_id,
		.num_sge = post->wr.num_sge,
		.sg_list = (struct ibv_sge *)(post + 1),
	};
	if (i)
		batch.recv[i - 1].next = &batch.recv[i];
}

static void post_batch(void)
{
	const struct remote_post *first = batch.from[0];
	struct ibv_send_wr *send = batch.send, *bad_send;
	struct ibv_recv_wr *bad_recv;

	if (!batch.count)
		return;
	if (first->queue == REMOTE_SEND)
		while (send && engine->post_send(first->object, send, &bad_send)) {
			refuse(batch.from[bad_send - batch.send]);
			send = bad_send->next;
		}
	else if (first->queue == REMOTE_RECEIVE) /* refused if the queue has just been reset, or is gone */
		engine->post_recv(first->object, batch.recv, &bad_recv);
	else
		engine->post_srq_recv(first->object, batch.recv, &bad_recv);
	batch.count = 0;
}

static void add(const struct remote_post *post)
{
	const struct remote_post *first = batch.from[0];

	if (batch.count && (batch.count == MOST || first->queue != post->queue || first->object != post->object))
		post_batch();
	if (post->queue == REMOTE_SEND)
		add_send(batch.count, post);
	else
		add_receive(batch.count, post);
	batch.from[batch.count++] = post;
}

void take_posts(void)
{
	uint32_t at, produced;

	if (!posts)
		return;
	produced = __atomic_load_n(&posts->produced, __ATOMIC_SEQ_CST);
	for (at = posts->consumed; at != produced;) {
		struct remote_post *post = (struct remote_post *)(posts->ring + at % REMOTE_POSTS_SIZE);

		if (!post->size) {
			at += REMOTE_POSTS_SIZE - at % REMOTE_POSTS_SIZE;
			continue;
		}
		if (post->size < sizeof(*post) || at % REMOTE_POSTS_SIZE + post->size > REMOTE_POSTS_SIZE)
			exit(1); /* the program has written over the ring */
		at += post->size;
		add(post);
	}
	post_batch();
	__atomic_store_n(&posts->consumed, at, __ATOMIC_RELEASE);
}

int bind_window(const struct remote_post *post, uint32_t *key)
{
	struct ibv_mw mw = { .handle = post->mw };
	struct ibv_mr mr = { .handle = post->mr };
	struct ibv_send_wr wr = post->wr, *bad;
	int status;

	if (wr.opcode != IBV_WR_BIND_MW)
		return EINVAL;
	wr.next = NULL;
	wr.bind_mw.mw = &mw;
	wr.bind_mw.bind_info.mr = post->mr ? &mr : NULL;
	status = engine->post_send(post->object, &wr, &bad);
	*key = mw.rkey;
	return status;
}

int wait_time(void)
{
	if (!posts)
		return -1;
	__atomic_store_n(&posts->asleep, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&posts->produced, __ATOMIC_SEQ_CST) == posts->consumed ? -1 : 0;
}
