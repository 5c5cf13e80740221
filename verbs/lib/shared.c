/* Memory and locks that processes share. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include "glibc.h"
#include "remote_lib.h"

BIND_FIRST(pthread_mutexattr_init);
BIND_FIRST(pthread_mutexattr_destroy);
BIND_FIRST(pthread_mutexattr_setpshared);
BIND_2_12(pthread_mutexattr_setrobust);
BIND_2_12(pthread_mutex_consistent);

void lock_shared(pthread_mutex_t *lock)
{
	if (pthread_mutex_lock(lock) == EOWNERDEAD) /* a child that was killed; positions move last */
		pthread_mutex_consistent(lock);
}

int init_shared(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;
	int status = pthread_mutexattr_init(&attr);

	if (status)
		return status;
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	status = pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
	return status;
}

void *share_memory(uint64_t size, int *fd)
{
	void *memory;

	*fd = memfd_create("ndklab-rnic", MFD_CLOEXEC);
	if (*fd < 0)
		return NULL;
	memory = ftruncate(*fd, size) ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (memory != MAP_FAILED)
		return memory;
	close(*fd);
	return NULL;
}
