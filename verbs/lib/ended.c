/* What becomes of a program whose engine's process has ended, as a device does that fails: asynchronous events tell
 * of it, who waits for a completion or for a connection is woken, what is asked for fails with EIO, and objects can
 * be destroyed all the same.
 *
 * A thread waits for the end, in each process that opens the device: nobody else may be in the library then.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_user_cm.h>
#include "glibc.h"
#include "remote_lib.h"

BIND_FIRST(pthread_create);
BIND_FIRST(pthread_attr_setstacksize);

/* The stack of the thread, bytes. */
#define STACK (128 << 10)

static pid_t watched; /* the process whose thread waits; atomic */

bool remote_ended(void)
{
	char byte;
	ssize_t n;

	if (__atomic_load_n(&remote.ended, __ATOMIC_RELAXED))
		return true;
	/* Where it left something unread, there is an error before the end. */
	n = recv(remote.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void *watch(void *argument)
{
	struct pollfd end = { .fd = remote.socket };
	const struct timespec pause = { .tv_nsec = 10000000 };

	while (poll(&end, 1, -1) < 1 || !end.revents)
		;
	__atomic_store_n(&remote.ended, true, __ATOMIC_RELAXED);
	queues_failed();
	cm_failed();
	while (!device_failed())
		nanosleep(&pause, NULL);
	return argument;
}

/* Without the thread the program is not told, and finds out. */
void watch_remote(void)
{
	pid_t pid = getpid();
	pthread_attr_t attr;
	pthread_t thread;

	if (__atomic_exchange_n(&watched, pid, __ATOMIC_RELAXED) == pid)
		return;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_create(&thread, &attr, watch, NULL);
	pthread_attr_destroy(&attr);
}

/* librdmacm waits for as many events of an ID as it is told of. */
long command_ended(const void *command, uint64_t length)
{
	struct {
		struct rdma_ucm_cmd_hdr header;
		struct rdma_ucm_destroy_id destroy;
	} of;

	if (length < sizeof(of))
		return -EIO;
	memcpy(&of, command, sizeof(of));
	if (of.header.cmd != RDMA_USER_CM_CMD_DESTROY_ID)
		return -EIO;
	memset((void *)(uintptr_t)of.destroy.response, 0, sizeof(struct rdma_ucm_destroy_id_resp));
	return length;
}
