/* Posting work requests to an engine in a process of its own: each is copied, with its SGEs or inline data, into the
 * ring of posts (remote.h).
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "remote_lib.h"

/* How long the ring may be full before somebody looks whether its reader is still there. */
static const struct timespec while_full = { .tv_nsec = 50000 };

/* Shows the engine's process what was posted up to a position. */
static void publish(uint32_t position)
{
	__atomic_store_n(&remote.posts->produced, position, __ATOMIC_SEQ_CST);
	if (__atomic_exchange_n(&remote.posts->asleep, 0, __ATOMIC_SEQ_CST))
		ring_doorbell();
}

/* Room for a record of size bytes, a multiple of 8, at *position, which moves behind it; NULL where the engine's
 * process has ended. The lock of posts is held. */
static struct remote_post *reserve(uint32_t *position, uint32_t size)
{
	uint32_t at = *position % REMOTE_POSTS_SIZE, skipped = 0;
	struct remote_post *post;

	if (__atomic_load_n(&remote.ended, __ATOMIC_RELAXED))
		return NULL;
	if (REMOTE_POSTS_SIZE - at < size)
		skipped = REMOTE_POSTS_SIZE - at;
	while (*position + skipped + size - __atomic_load_n(&remote.posts->consumed, __ATOMIC_ACQUIRE) >
	       REMOTE_POSTS_SIZE) {
		publish(*position);
		if (remote_ended())
			return NULL;
		nanosleep(&while_full, NULL);
	}
	if (skipped)
		((struct remote_post *)(remote.posts->ring + at))->size = 0;
	*position += skipped;
	post = (struct remote_post *)(remote.posts->ring + *position % REMOTE_POSTS_SIZE);
	*position += size;
	return post;
}

/* Copies data that the program need not have: EFAULT then, as from the engine where it is in the program's process. */
static int copy_inline(char *to, const struct ibv_send_wr *wr)
{
	for (int i = 0; i < wr->num_sge; i++) {
		size_t length = wr->sg_list[i].length;
		struct iovec local = { to, length };
		struct iovec program = { (void *)(uintptr_t)wr->sg_list[i].addr, length };

		if (length && process_vm_readv(getpid(), &local, 1, &program, 1, 0) != (ssize_t)length)
			return EFAULT;
		to += length;
	}
	return 0;
}

/* Copies a checked work request that has data, or none, to the ring. */
static int put_send(struct remote_qp *qp, const struct ibv_send_wr *wr, uint32_t *position)
{
	bool has_data = wr->opcode != IBV_WR_LOCAL_INV;
	bool inlined = has_data && (wr->send_flags & IBV_SEND_INLINE);
	uint32_t sges = has_data ? wr->num_sge : 0, bytes = inlined ? data_length(wr) : 0;
	uint32_t behind = inlined ? bytes : sges * sizeof(struct ibv_sge);
	uint32_t size = (sizeof(struct remote_post) + behind + 7) & ~7u;
	struct remote_post *post = reserve(position, size);
	int status;

	if (!post)
		return EIO;
	*post = (struct remote_post){
		.size = size, .queue = REMOTE_SEND, .object = qp->handle, .inline_size = bytes, .wr = *wr,
	};
	post->wr.num_sge = sges;
	if (qp->type == IBV_QPT_UD)
		post->ah = wr->wr.ud.ah->handle;
	status = inlined ? copy_inline((char *)(post + 1), wr) : 0;
	if (!inlined && sges)
		memcpy(post + 1, wr->sg_list, behind);
	if (!status && !take_place(&qp->send, wr->wr_id, &post->wr.wr_id))
		status = ENOMEM;
	if (status)
		*position -= size;
	return status;
}

/* Binds a window, of which the engine alone knows whether it may be, and by which key: it is asked, behind what was
 * posted before. */
static int bind_window(struct remote_qp *qp, struct ibv_send_wr *wr, uint32_t position)
{
	struct remote_post post = { .queue = REMOTE_SEND, .object = qp->handle, .wr = *wr };
	uint32_t key;
	int status;

	if (!wr->bind_mw.mw)
		return EINVAL;
	post.mw = wr->bind_mw.mw->handle;
	post.mr = wr->bind_mw.bind_info.mr ? wr->bind_mw.bind_info.mr->handle : 0;
	if (!take_place(&qp->send, wr->wr_id, &post.wr.wr_id))
		return ENOMEM;
	publish(position);
	status = remote_bind(&post, &key);
	if (status)
		return_place(&qp->send);
	else
		wr->bind_mw.mw->rkey = key;
	return status;
}

int queues_post_send(uint64_t handle, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct remote_qp *qp = (struct remote_qp *)(uintptr_t)handle;
	uint32_t position;
	int status = 0;

	lock_shared(&remote.posts->lock);
	position = remote.posts->produced;
	for (; wr; wr = wr->next) {
		status = check_send(qp, wr);
		if (!status)
			status = wr->opcode == IBV_WR_BIND_MW ? bind_window(qp, wr, position) :
								put_send(qp, wr, &position);
		if (status) {
			*bad = wr;
			break;
		}
	}
	publish(position);
	pthread_mutex_unlock(&remote.posts->lock);
	return status;
}

/* Posts receives to the queue of an object in the engine's process. */
static int post_receives(enum remote_queue queue, uint64_t object, struct work *work, uint32_t max_sge,
			 struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint32_t position;
	int status = 0;

	lock_shared(&remote.posts->lock);
	position = remote.posts->produced;
	for (; wr && !status; wr = wr->next) {
		uint32_t behind = wr->num_sge * sizeof(struct ibv_sge);
		uint32_t size = (sizeof(struct remote_post) + behind + 7) & ~7u;
		struct remote_post *post;

		*bad = wr;
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge) {
			status = EINVAL;
			break;
		}
		post = reserve(&position, size);
		if (!post) {
			status = EIO;
			break;
		}
		*post = (struct remote_post){ .size = size, .queue = queue, .object = object };
		post->wr.num_sge = wr->num_sge;
		if (behind)
			memcpy(post + 1, wr->sg_list, behind);
		if (!take_place(work, wr->wr_id, &post->wr.wr_id)) {
			position -= size;
			status = ENOMEM;
		}
	}
	publish(position);
	pthread_mutex_unlock(&remote.posts->lock);
	return status;
}

int queues_post_recv(uint64_t handle, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct remote_qp *qp = (struct remote_qp *)(uintptr_t)handle;

	if (!qp->recv.depth || __atomic_load_n(&qp->state, __ATOMIC_ACQUIRE) == IBV_QPS_RESET) {
		*bad = wr;
		return EINVAL;
	}
	return post_receives(REMOTE_RECEIVE, qp->handle, &qp->recv, qp->cap.max_recv_sge, wr, bad);
}

int queues_post_srq_recv(uint64_t handle, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct remote_srq *srq = (struct remote_srq *)(uintptr_t)handle;

	return post_receives(REMOTE_SRQ_RECEIVE, srq->handle, &srq->work, srq->max_sge, wr, bad);
}
