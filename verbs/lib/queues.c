/* Queues of an engine in a process of its own: work requests and completions through rings in shared memory
 * (remote.h).
 *
 * Whether there is room in a queue is known from what was posted and what has completed (check.c has the other errors
 * of posting). The wr_id of a work request stays here, and a name of its place in its queue goes in its stead.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "remote_lib.h"

#define LISTS 1024

/* Every how many polls in vain one waits for a completion, of whichever CQ, and so lets others have the processor, which
 * the engine's process may be waiting for; for how long at most; and every how many one looks whether that is there. */
#define WAIT_EVERY 16
#define LOOK_EVERY 1024
static const struct timespec longest_poll = { .tv_nsec = 50000 };

/* Works by id, and what changes of them when they complete. */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;
static struct work *works[LISTS]; /* guarded by naming */
static uint32_t last_id;	  /* guarded by naming */
static struct remote_cq *cqs;	  /* guarded by naming */

void queues_forked(void)
{
	naming = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* The lock is held in these three. */
static struct work *find_work(uint32_t id)
{
	struct work *work = works[id % LISTS];

	while (work && work->id != id)
		work = work->next;
	return work;
}

static void list_work(struct work *work)
{
	do
		last_id++;
	while (!last_id || find_work(last_id));
	work->id = last_id;
	work->next = works[work->id % LISTS];
	works[work->id % LISTS] = work;
}

static void unlist_work(struct work *work)
{
	struct work **at = &works[work->id % LISTS];

	while (*at != work)
		at = &(*at)->next;
	*at = work->next;
}

/* Grows the places of a queue. Returns ENOMEM where there is no memory for them. */
static int grow_work(struct work *work, uint32_t depth, bool shared)
{
	uint64_t *ids = realloc(work->ids, (depth ? depth : 1) * sizeof(*ids));
	uint32_t *free = NULL;

	if (!ids)
		return ENOMEM;
	work->ids = ids;
	if (shared) {
		free = realloc(work->free, depth * sizeof(*free));
		if (!free)
			return ENOMEM;
		work->free = free;
		for (uint32_t place = work->depth; place < depth; place++)
			work->free[work->free_count++] = place;
	}
	work->depth = depth;
	return 0;
}

static int start_work(struct work *work, uint32_t depth, bool shared)
{
	int status = grow_work(work, depth, shared);

	if (status)
		return status;
	pthread_mutex_lock(&naming);
	list_work(work);
	pthread_mutex_unlock(&naming);
	return 0;
}

static void end_work(struct work *work)
{
	if (work->id) {
		pthread_mutex_lock(&naming);
		unlist_work(work);
		pthread_mutex_unlock(&naming);
	}
	free(work->ids);
	free(work->free);
	*work = (struct work){ 0 };
}

/* Has the queue be empty. Completions of what was in it are not known any more. */
static void empty_work(struct work *work)
{
	pthread_mutex_lock(&naming);
	unlist_work(work);
	work->posted = work->retired = 0;
	list_work(work);
	pthread_mutex_unlock(&naming);
}

bool take_place(struct work *work, uint64_t wr_id, uint64_t *name)
{
	uint32_t place;
	bool room;

	pthread_mutex_lock(&naming);
	room = work->free ? work->free_count > 0 : work->posted - work->retired < work->depth;
	if (room) {
		place = work->free ? work->free[--work->free_count] : work->posted++ % work->depth;
		work->ids[place] = wr_id;
		*name = (uint64_t)work->id << 32 | place;
	}
	pthread_mutex_unlock(&naming);
	return room;
}

void return_place(struct work *work)
{
	pthread_mutex_lock(&naming);
	work->posted--;
	pthread_mutex_unlock(&naming);
}

/* Gives the place of a completion back, with all before it of an ordered queue, and the wr_id to *name; false if it
 * is of a queue that has been emptied or is gone. */
static bool give_place(uint64_t *name)
{
	uint32_t place = (uint32_t)*name;
	struct work *work;

	pthread_mutex_lock(&naming);
	work = find_work(*name >> 32);
	if (work) {
		*name = work->ids[place];
		if (work->free)
			work->free[work->free_count++] = place;
		else
			work->retired += (place + work->depth - work->retired % work->depth) % work->depth + 1;
	}
	pthread_mutex_unlock(&naming);
	return work;
}

/* Completion queues. */

static uint32_t ring_size(int cqe)
{
	uint32_t size = 16;

	while (size < (uint32_t)cqe)
		size *= 2;
	return size;
}

static struct remote_completions *new_ring(int cqe, int *fd)
{
	uint32_t size = ring_size(cqe);
	struct remote_completions *ring = share_memory(remote_completions_bytes(size), fd);

	if (!ring)
		return NULL;
	ring->size = size;
	if (!init_shared(&ring->lock))
		return ring;
	munmap(ring, remote_completions_bytes(size));
	close(*fd);
	return NULL;
}

static void free_ring(struct remote_completions *ring)
{
	if (ring)
		munmap(ring, remote_completions_bytes(ring->size));
}

/* The ring that the CQ has, locked. */
static struct remote_completions *lock_ring(struct remote_cq *cq)
{
	for (;;) {
		struct remote_completions *ring = __atomic_load_n(&cq->ring, __ATOMIC_ACQUIRE);

		lock_shared(&ring->lock);
		if (ring == __atomic_load_n(&cq->ring, __ATOMIC_ACQUIRE))
			return ring;
		pthread_mutex_unlock(&ring->lock);
	}
}

int queues_create_cq(uint64_t context, int cqe, int fd, uint64_t cookie, uint64_t *out)
{
	struct remote_cq *cq = calloc(1, sizeof(*cq));
	int ring_fd, status;

	if (!cq)
		return ENOMEM;
	cq->channel = fd;
	cq->cookie = cookie;
	cq->ring = new_ring(cqe, &ring_fd);
	if (!cq->ring) {
		free(cq);
		return ENOMEM;
	}
	status = remote_create_cq(context, cqe, ring_fd, fd, cookie, &cq->handle);
	close(ring_fd);
	if (status) {
		free_ring(cq->ring);
		free(cq);
		return status;
	}
	pthread_mutex_lock(&naming);
	cq->next = cqs;
	cqs = cq;
	pthread_mutex_unlock(&naming);
	*out = (uintptr_t)cq;
	return 0;
}

/* The engine's process moves what is in the ring. */
int queues_resize_cq(uint64_t handle, int cqe)
{
	struct remote_cq *cq = (struct remote_cq *)(uintptr_t)handle;
	struct remote_completions *ring, *before;
	int fd, status;

	ring = new_ring(cqe, &fd);
	if (!ring)
		return ENOMEM;
	before = lock_ring(cq);
	status = remote_resize_cq(cq->handle, cqe, fd);
	if (!status)
		__atomic_store_n(&cq->ring, ring, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&before->lock);
	close(fd);
	if (status) {
		free_ring(ring);
		return status;
	}
	free_ring(cq->old);
	cq->old = before;
	return 0;
}

int queues_destroy_cq(uint64_t handle)
{
	struct remote_cq *cq = (struct remote_cq *)(uintptr_t)handle;
	int status = remote_destroy_cq(cq->handle);
	struct remote_cq **at = &cqs;

	if (status)
		return status;
	pthread_mutex_lock(&naming);
	while (*at != cq)
		at = &(*at)->next;
	*at = cq->next;
	pthread_mutex_unlock(&naming);
	cq->handle = 0; /* which may be another CQ's now */
	return 0;
}

void queues_release_cq(uint64_t handle)
{
	struct remote_cq *cq = (struct remote_cq *)(uintptr_t)handle;

	free_ring(cq->ring);
	free_ring(cq->old);
	free(cq);
}

/* Each process has the list that it was forked with, and one of them finds a CQ armed. */
void queues_failed(void)
{
	pthread_mutex_lock(&naming);
	for (struct remote_cq *cq = cqs; cq; cq = cq->next) {
		struct remote_completions *ring = __atomic_load_n(&cq->ring, __ATOMIC_ACQUIRE);

		if (__atomic_exchange_n(&ring->armed, REMOTE_UNARMED, __ATOMIC_SEQ_CST) != REMOTE_UNARMED &&
		    cq->channel >= 0)
			send(cq->channel, &cq->cookie, sizeof(cq->cookie), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	pthread_mutex_unlock(&naming);
}

int queues_req_notify_cq(uint64_t handle, int solicited_only)
{
	struct remote_completions *ring = lock_ring((struct remote_cq *)(uintptr_t)handle);
	uint32_t unarmed = REMOTE_UNARMED;

	if (solicited_only)
		__atomic_compare_exchange_n(&ring->armed, &unarmed, REMOTE_ARMED_SOLICITED, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	else
		__atomic_store_n(&ring->armed, REMOTE_ARMED_ANY, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&ring->lock);
	return remote_ended() ? EIO : 0;
}

/* Takes completions out of the ring, but those of queues that are not there any more. */
static int take_completions(struct remote_completions *ring, int n, struct ibv_wc *wc, uint64_t *times)
{
	uint32_t produced = __atomic_load_n(&ring->produced, __ATOMIC_ACQUIRE), at = ring->consumed;
	int taken = 0;

	for (; at != produced && taken < n; at++) {
		const struct remote_completion *completion = &ring->completion[at & (ring->size - 1)];

		wc[taken] = completion->wc;
		if (!give_place(&wc[taken].wr_id))
			continue;
		if (times)
			times[taken] = completion->at;
		taken++;
	}
	__atomic_store_n(&ring->consumed, at, __ATOMIC_SEQ_CST);
	return taken;
}

/* Waits until there are more completions than so many. */
static void await_completions(uint32_t completed)
{
	__atomic_store_n(&remote.posts->awaited, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &remote.posts->completed, FUTEX_WAIT, completed, &longest_poll, NULL, 0);
}

/* A poll in vain takes no system call, but for now and then. */
int queues_poll_cq(uint64_t handle, int n, struct ibv_wc *wc, uint64_t *times)
{
	struct remote_cq *cq = (struct remote_cq *)(uintptr_t)handle;
	uint32_t completed = __atomic_load_n(&remote.posts->completed, __ATOMIC_SEQ_CST);
	struct remote_completions *ring = lock_ring(cq);
	uint32_t vain, consumed = ring->consumed;
	int taken = n < 0 ? -EINVAL : take_completions(ring, n, wc, times);
	/* There is room also where all that were taken were of queues that are not there any more. */
	bool waited_for = ring->consumed != consumed && __atomic_exchange_n(&ring->full, 0, __ATOMIC_SEQ_CST);

	pthread_mutex_unlock(&ring->lock);
	if (waited_for)
		ring_doorbell();
	if (taken)
		return taken;
	vain = __atomic_add_fetch(&cq->vain, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&remote.ended, __ATOMIC_RELAXED) || (!(vain % LOOK_EVERY) && remote_ended()))
		return -EIO;
	if (!(vain % WAIT_EVERY))
		await_completions(completed);
	return 0;
}

/* Drops the completions of a queue pair that is gone or has been reset. */
static void drop_completions(struct remote_cq *cq, uint32_t qp_num)
{
	struct remote_completions *ring = lock_ring(cq);
	uint32_t produced = __atomic_load_n(&ring->produced, __ATOMIC_ACQUIRE);

	for (uint32_t at = ring->consumed; at != produced; at++) {
		struct ibv_wc *wc = &ring->completion[at & (ring->size - 1)].wc;

		if (wc->qp_num == qp_num) {
			give_place(&wc->wr_id);
			wc->wr_id = 0; /* of no queue */
		}
	}
	pthread_mutex_unlock(&ring->lock);
}

/* Shared receive queues. */

int queues_create_srq(uint64_t pd, uint64_t cookie, struct ibv_srq_attr *attr, uint64_t *out)
{
	struct remote_srq *srq = calloc(1, sizeof(*srq));
	int status;

	if (!srq)
		return ENOMEM;
	status = remote_create_srq(pd, cookie, attr, &srq->handle);
	srq->max_sge = attr->max_sge;
	if (!status) {
		status = start_work(&srq->work, attr->max_wr, true);
		if (status)
			remote_destroy_srq(srq->handle);
	}
	if (status) {
		end_work(&srq->work);
		free(srq);
		return status;
	}
	*out = (uintptr_t)srq;
	return 0;
}

int queues_modify_srq(uint64_t handle, const struct ibv_srq_attr *attr, int mask)
{
	struct remote_srq *srq = (struct remote_srq *)(uintptr_t)handle;
	int status = remote_modify_srq(srq->handle, attr, mask);

	if (status || !(mask & IBV_SRQ_MAX_WR) || attr->max_wr <= srq->work.depth)
		return status;
	pthread_mutex_lock(&naming);
	status = grow_work(&srq->work, attr->max_wr, true);
	pthread_mutex_unlock(&naming);
	return status;
}

int queues_query_srq(uint64_t handle, struct ibv_srq_attr *attr)
{
	return remote_query_srq(((struct remote_srq *)(uintptr_t)handle)->handle, attr);
}

int queues_destroy_srq(uint64_t handle)
{
	return remote_destroy_srq(((struct remote_srq *)(uintptr_t)handle)->handle);
}

void queues_release_srq(uint64_t handle)
{
	struct remote_srq *srq = (struct remote_srq *)(uintptr_t)handle;

	end_work(&srq->work);
	free(srq);
}

/* Queue pairs. */

static void free_qp(struct remote_qp *qp)
{
	end_work(&qp->send);
	end_work(&qp->recv);
	free(qp);
}

int queues_create_qp(struct engine_qp_init *init, uint64_t *out)
{
	struct engine_qp_init theirs = *init;
	struct remote_qp *qp = calloc(1, sizeof(*qp));
	int status;

	if (!qp)
		return ENOMEM;
	qp->send_cq = (struct remote_cq *)(uintptr_t)init->send_cq;
	qp->recv_cq = (struct remote_cq *)(uintptr_t)init->recv_cq;
	theirs.send_cq = qp->send_cq->handle;
	theirs.recv_cq = qp->recv_cq->handle;
	theirs.srq = init->srq ? ((struct remote_srq *)(uintptr_t)init->srq)->handle : 0;
	status = remote_create_qp(&theirs, &qp->handle);
	if (status) {
		free(qp);
		return status;
	}
	init->cap = qp->cap = theirs.cap;
	init->qp_num = qp->number = theirs.qp_num;
	qp->type = init->type;
	qp->pd = init->pd;
	status = start_work(&qp->send, qp->cap.max_send_wr, false);
	if (!status)
		status = start_work(&qp->recv, init->srq ? 0 : qp->cap.max_recv_wr, false);
	if (status) {
		remote_destroy_qp(qp->handle);
		free_qp(qp);
		return status;
	}
	*out = (uintptr_t)qp;
	return 0;
}

static void forget_completions(struct remote_qp *qp)
{
	drop_completions(qp->send_cq, qp->number);
	if (qp->recv_cq != qp->send_cq)
		drop_completions(qp->recv_cq, qp->number);
}

int queues_modify_qp(uint64_t handle, const struct ibv_qp_attr *attr, int mask)
{
	struct remote_qp *qp = (struct remote_qp *)(uintptr_t)handle;
	int status = remote_modify_qp(qp->handle, attr, mask);

	if (!status && (mask & IBV_QP_MAX_QP_RD_ATOMIC))
		__atomic_store_n(&qp->reads, attr->max_rd_atomic, __ATOMIC_RELAXED);
	if (status || !(mask & IBV_QP_STATE))
		return status;
	__atomic_store_n(&qp->state, attr->qp_state, __ATOMIC_RELEASE);
	if (attr->qp_state == IBV_QPS_RESET) {
		forget_completions(qp);
		empty_work(&qp->send);
		empty_work(&qp->recv);
	}
	return 0;
}

int queues_query_qp(uint64_t handle, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	return remote_query_qp(((struct remote_qp *)(uintptr_t)handle)->handle, attr, init);
}

int queues_destroy_qp(uint64_t handle)
{
	struct remote_qp *qp = (struct remote_qp *)(uintptr_t)handle;
	int status = remote_destroy_qp(qp->handle);

	if (status)
		return status;
	__atomic_store_n(&qp->state, IBV_QPS_RESET, __ATOMIC_RELEASE);
	forget_completions(qp);
	return 0;
}

void queues_release_qp(uint64_t handle)
{
	free_qp((struct remote_qp *)(uintptr_t)handle);
}

int queues_attach_mcast(uint64_t handle, const uint8_t gid[16])
{
	return remote_mcast(true, ((struct remote_qp *)(uintptr_t)handle)->handle, gid);
}

int queues_detach_mcast(uint64_t handle, const uint8_t gid[16])
{
	return remote_mcast(false, ((struct remote_qp *)(uintptr_t)handle)->handle, gid);
}
