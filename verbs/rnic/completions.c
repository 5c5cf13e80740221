/* Completion queues: the engine's, of which the completions are moved to the library's rings. The engine's queue
 * is armed whenever it is empty; where a ring is full, its library rings the doorbell when it has room again.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "rnic.h"

struct cq {
	uint64_t engine;
	struct remote_completions *ring;
	int channel; /* -1 without */
	uint64_t cookie;
	int marked; /* it may have completions to move */
};

int notices = -1, doorbell = -1;

static int told; /* the engine's end of notices */
static struct cq **cqs;
static uint32_t room;
static int any_marked;

int open_notices(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return errno;
	notices = ends[0];
	told = ends[1];
	return 0;
}

/* A handle is one more than the place. */
static struct cq *find(uint64_t handle)
{
	return handle && handle <= room ? cqs[handle - 1] : NULL;
}

static int name(struct cq *cq, uint64_t *handle)
{
	uint32_t place = 0, more = room + 64;
	struct cq **grown;

	while (place < room && cqs[place])
		place++;
	if (place == room) {
		grown = realloc(cqs, more * sizeof(struct cq *));
		if (!grown)
			return ENOMEM;
		cqs = grown;
		for (uint32_t i = room; i < more; i++)
			cqs[i] = NULL;
		room = more;
	}
	cqs[place] = cq;
	*handle = place + 1;
	return 0;
}

static struct remote_completions *map_ring(int memory)
{
	struct remote_completions *ring = mmap(NULL, sizeof(*ring), PROT_READ, MAP_SHARED, memory, 0);
	uint32_t size;

	if (ring == MAP_FAILED)
		return NULL;
	size = ring->size;
	munmap(ring, sizeof(*ring));
	ring = mmap(NULL, remote_completions_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	return ring == MAP_FAILED ? NULL : ring;
}

static void unmap_ring(struct remote_completions *ring)
{
	munmap(ring, remote_completions_bytes(ring->size));
}

static void mark(struct cq *cq)
{
	cq->marked = 1;
	any_marked = 1;
}

int create_cq(uint64_t context, int cqe, uint64_t cookie, int memory, int channel, uint64_t *handle)
{
	struct cq *cq = calloc(1, sizeof(*cq));
	int status = cq ? 0 : ENOMEM;

	if (!status && !(cq->ring = map_ring(memory)))
		status = ENOMEM;
	if (!status)
		status = name(cq, handle);
	if (!status) {
		status = engine->create_cq(context, cqe, told, *handle, &cq->engine);
		if (status)
			cqs[*handle - 1] = NULL;
	}
	if (status) {
		if (cq && cq->ring)
			unmap_ring(cq->ring);
		free(cq);
		if (channel >= 0)
			close(channel);
		return status;
	}
	cq->channel = channel < 0 ? -1 : keep_socket(channel);
	cq->cookie = cookie;
	engine->name_cq(cq->engine, cookie);
	mark(cq);
	return 0;
}

uint64_t engine_cq(uint64_t handle)
{
	struct cq *cq = find(handle);

	return cq ? cq->engine : 0;
}

/* The library takes nothing out of the ring meanwhile. */
int resize_cq(uint64_t handle, int cqe, int memory)
{
	struct cq *cq = find(handle);
	struct remote_completions *ring, *before;
	uint32_t waiting;
	int status;

	if (!cq)
		return EINVAL;
	before = cq->ring;
	waiting = before->produced - before->consumed;
	if (cqe < 1 || waiting > (uint32_t)cqe)
		return EINVAL;
	ring = map_ring(memory);
	if (!ring)
		return ENOMEM;
	status = engine->resize_cq(cq->engine, cqe);
	if (status) {
		unmap_ring(ring);
		return status;
	}
	for (uint32_t i = 0; i < waiting; i++)
		ring->completion[i] = before->completion[(before->consumed + i) & (before->size - 1)];
	ring->armed = before->armed;
	__atomic_store_n(&ring->produced, waiting, __ATOMIC_RELEASE);
	cq->ring = ring;
	unmap_ring(before);
	mark(cq);
	return 0;
}

int destroy_cq(uint64_t handle)
{
	struct cq *cq = find(handle);
	int status = cq ? engine->destroy_cq(cq->engine) : EINVAL;

	if (status)
		return status;
	cqs[handle - 1] = NULL;
	unmap_ring(cq->ring);
	if (cq->channel >= 0) {
		engine->drop_events(cq->cookie);
		drop_socket(cq->channel);
	}
	free(cq);
	return 0;
}

/* Tells the program of a completion if it has asked for that. */
static void tell(struct cq *cq, int solicited)
{
	uint32_t armed = __atomic_load_n(&cq->ring->armed, __ATOMIC_SEQ_CST);

	do {
		if (cq->channel < 0 || armed == REMOTE_UNARMED || (armed == REMOTE_ARMED_SOLICITED && !solicited))
			return;
	} while (!__atomic_compare_exchange_n(&cq->ring->armed, &armed, REMOTE_UNARMED, 0, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	engine->send_event(cq->channel, cq->cookie);
}

static uint32_t room_of(struct remote_completions *ring)
{
	return ring->size - (ring->produced - __atomic_load_n(&ring->consumed, __ATOMIC_SEQ_CST));
}

static void put(struct cq *cq, const struct ibv_wc *wc, const uint64_t *at, int n)
{
	struct remote_completions *ring = cq->ring;
	int solicited = 0;

	for (int i = 0; i < n; i++) {
		struct remote_completion *to = &ring->completion[(ring->produced + i) & (ring->size - 1)];

		*to = (struct remote_completion){ .wc = wc[i], .at = at[i] };
		to->wc.wc_flags &= ~ENGINE_WC_SOLICITED;
		solicited |= wc[i].status || (wc[i].wc_flags & ENGINE_WC_SOLICITED);
	}
	__atomic_store_n(&ring->produced, ring->produced + n, __ATOMIC_SEQ_CST);
	wake_pollers(n);
	tell(cq, solicited);
}

void add_completion(uint64_t handle, const struct ibv_wc *wc)
{
	struct cq *cq = find(handle);
	uint64_t now = engine->clock();

	if (cq && room_of(cq->ring))
		put(cq, wc, &now, 1);
}

static void fill(struct cq *cq)
{
	struct ibv_wc wc[64];
	uint64_t at[64];
	int armed = 0;

	for (;;) {
		uint32_t left = room_of(cq->ring);
		int n;

		if (!left) {
			__atomic_store_n(&cq->ring->full, 1, __ATOMIC_SEQ_CST);
			if (!room_of(cq->ring))
				return; /* still marked: the doorbell has this tried again */
			continue;
		}
		n = engine->poll_cq(cq->engine, left < 64 ? left : 64, wc, at);
		if (n > 0) {
			put(cq, wc, at, n);
			continue;
		}
		if (n < 0 || armed)
			break;
		engine->req_notify_cq(cq->engine, 0); /* what comes from now on is told */
		armed = 1;
	}
	cq->marked = 0;
}

/* So many notices at once may be all that the socket had room for, and some were lost. */
#define MANY_NOTICES 64

void take_notices(void)
{
	uint64_t handle;
	int n = 0;

	for (; recv(notices, &handle, sizeof(handle), MSG_DONTWAIT) == sizeof(handle); n++)
		if (find(handle))
			mark(find(handle));
	for (uint32_t i = 0; n >= MANY_NOTICES && i < room; i++)
		if (cqs[i])
			mark(cqs[i]);
}

void fill_rings(int rung)
{
	uint64_t count;

	if (rung && read(doorbell, &count, sizeof(count)) == sizeof(count))
		any_marked = 1; /* those whose rings were full */
	if (!any_marked)
		return;
	any_marked = 0;
	for (uint32_t i = 0; i < room; i++)
		if (cqs[i] && cqs[i]->marked)
			fill(cqs[i]);
}
