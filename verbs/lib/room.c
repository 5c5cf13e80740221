/* Whether there is room for the engine in this process: where there is not, the Go runtime ends the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "glibc.h"
#include "room.h"

BIND_FIRST(pthread_create);
BIND_FIRST(pthread_join);

/* What the Go runtime has to have to start: descriptors to wait with, threads, and addresses to reserve. It takes 1.2 GiB of
 * them for its tables and the first heap. */
#define LEAST_DESCRIPTORS 8
#define LEAST_THREADS 8
#define LEAST_ADDRESSES ((size_t)1536 << 20)

/* For each thread the C library reserves an arena of 64 MiB, once it has reserved 128 and given back what is not
 * aligned, and a stack, of 8 MiB where nobody asks for another. */
#define ADDRESSES_OF_THREAD ((size_t)136 << 20)

static int check_descriptors(void)
{
	int made[LEAST_DESCRIPTORS], n = 0, status;

	while (n < LEAST_DESCRIPTORS && (made[n] = open("/", O_PATH | O_CLOEXEC)) >= 0)
		n++;
	status = n < LEAST_DESCRIPTORS ? errno : 0;
	while (n)
		close(made[--n]);
	return status;
}

/* The runtime has a thread for each processor and some that wait. */
static int check_addresses(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	size_t length = LEAST_ADDRESSES + (LEAST_THREADS + (processors > 0 ? processors : 1)) * ADDRESSES_OF_THREAD;
	void *addresses = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (addresses == MAP_FAILED)
		return ENOMEM;
	munmap(addresses, length);
	return 0;
}

static void *pass(void *gate)
{
	pthread_mutex_lock(gate);
	pthread_mutex_unlock(gate);
	return NULL;
}

/* All threads are there at once, since none passes the gate before the last is. */
static int check_threads(void)
{
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[LEAST_THREADS];
	int n = 0, status = 0;

	pthread_mutex_lock(&gate);
	while (n < LEAST_THREADS && !(status = pthread_create(&threads[n], NULL, pass, &gate)))
		n++;
	pthread_mutex_unlock(&gate);
	while (n)
		pthread_join(threads[--n], NULL);
	return status;
}

int check_room(void)
{
	int status = check_descriptors();

	if (!status)
		status = check_addresses();
	return status ? status : check_threads();
}
