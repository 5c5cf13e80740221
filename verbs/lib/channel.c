/* Completion channels, and what they share with asynchronous events (events.c).
 *
 * A channel is a pair of connected sockets: the engine writes each event as one datagram to our end, and the
 * program has the other, so that poll, O_NONBLOCK and signals are the kernel's. The cookie in an event is the
 * address of the object. It is safe to follow since an object that is destroyed first has its events removed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lib.h"
#include "public.h"

int open_event_pair(int *program, int *ours)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -1;
	*program = ends[0];
	*ours = ends[1];
	return 0;
}

int take_event(int program, pthread_mutex_t *taking, void *event, size_t size, void (*taken)(void *event))
{
	for (;;) {
		ssize_t n;
		char first;

		pthread_mutex_lock(taking);
		n = recv(program, event, size, MSG_DONTWAIT);
		if (n == (ssize_t)size)
			taken(event);
		pthread_mutex_unlock(taking);
		if (n == (ssize_t)size)
			return 0;
		if (n >= 0) {
			errno = EIO;
			return -1;
		}
		if (errno != EAGAIN)
			return -1;
		/* Waits, unless the program has set O_NONBLOCK. Unlike poll(2) this goes on after a signal whose
		 * handler asks for that (SA_RESTART, signal(7)), as reading from an event file of the kernel does.
		 * Signals of the engine are such ones, of which the program must not learn. */
		if (recv(program, &first, sizeof(first), MSG_PEEK) < 0)
			return -1;
	}
}

/* Events of others are taken out and put back in order. A reader meanwhile finds none, and waits; the engine sends none,
 * so that there is room for those that are put back. */
void remove_events(struct ibv_context *context, int program, int ours, pthread_mutex_t *taking, size_t size,
		   bool (*is_about)(const void *event, uint64_t cookie), uint64_t cookie)
{
	char *kept = NULL, *grown;
	size_t count = 0, room = 0;

	pthread_mutex_lock(taking);
	CALL(context, hold_events, ours, 1);
	for (;;) {
		if (count == room) {
			room = room ? 2 * room : 16;
			grown = realloc(kept, room * size);
			if (!grown)
				break;
			kept = grown;
		}
		if (recv(program, kept + count * size, size, MSG_DONTWAIT) != (ssize_t)size)
			break;
		if (!is_about(kept + count * size, cookie))
			count++;
	}
	for (size_t i = 0; i < count; i++)
		(void)!send(ours, kept + i * size, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	CALL(context, hold_events, ours, 0);
	pthread_mutex_unlock(taking);
	free(kept);
}

void wait_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged,
		       const uint32_t *taken)
{
	pthread_mutex_lock(mutex);
	while (*acknowledged != *taken)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	int status = check_context(context);
	struct channel *channel = status ? NULL : calloc(1, sizeof(*channel));

	if (!channel) {
		errno = status ? status : ENOMEM;
		return NULL;
	}
	if (open_event_pair(&channel->channel.fd, &channel->fd)) {
		free(channel);
		return NULL;
	}
	pthread_mutex_init(&channel->taking, NULL);
	channel->channel.context = context;
	return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *public)
{
	struct channel *channel = to_channel(public);
	int status = check_context(public->context);

	if (status)
		return status;
	pthread_mutex_lock(&channel->taking);
	status = public->refcnt ? EBUSY : 0;
	pthread_mutex_unlock(&channel->taking);
	if (status)
		return status;
	close(public->fd);
	close(channel->fd);
	pthread_mutex_destroy(&channel->taking);
	free(channel);
	return 0;
}

static void count_completion(void *event)
{
	struct cq *cq = (struct cq *)(uintptr_t)*(uint64_t *)event;

	pthread_mutex_lock(&cq->cq.mutex);
	cq->comp_events++;
	pthread_mutex_unlock(&cq->cq.mutex);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	int status = check_context(channel->context);
	uint64_t cookie;

	if (status) {
		errno = status;
		return -1;
	}
	if (take_event(channel->fd, &to_channel(channel)->taking, &cookie, sizeof(cookie), count_completion))
		return -1;
	*cq = &((struct cq *)(uintptr_t)cookie)->cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
