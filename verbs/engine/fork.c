/* The engine's sockets in children of the process.
 *
 * A child that is forked has no engine, and yet all of its sockets. It closes them at once, or the parent's part of the
 * adapter would not end before the child. In the handler of a fork nothing but system calls is safe: so the table is
 * not locked, and tells by the inode whether a descriptor is still the socket that it was.
 */
#include "fork.h"
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An adapter has some sockets for each of its addresses. What does not fit stays open in children. */
#define MOST 1024

static struct {
	int fd;
	uint64_t inode; /* atomic; 0 in a place that is being filled */
} sockets[MOST];
static unsigned int count; /* atomic; of places that were taken, which may be more than there are */

/* By its number: fstat of glibc 2.33 would keep the library from older ones. */
static uint64_t inode_of(int fd)
{
	struct stat st;

	return syscall(SYS_fstat, fd, &st) ? 0 : st.st_ino;
}

/* A place whose socket is closed is used again, so that many that come and go fit. */
void engine_opened(int fd)
{
	uint64_t inode = inode_of(fd);
	unsigned int i;

	for (i = 0; i < MOST && i < __atomic_load_n(&count, __ATOMIC_ACQUIRE); i++) {
		uint64_t was = __atomic_load_n(&sockets[i].inode, __ATOMIC_ACQUIRE);

		if (was && sockets[i].fd == fd &&
		    __atomic_compare_exchange_n(&sockets[i].inode, &was, inode, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return;
	}
	i = __atomic_fetch_add(&count, 1, __ATOMIC_ACQ_REL);
	if (i >= MOST)
		return;
	sockets[i].fd = fd;
	__atomic_store_n(&sockets[i].inode, inode, __ATOMIC_RELEASE);
}

static void close_all(void)
{
	int before = errno;

	for (unsigned int i = 0; i < MOST && i < count; i++) {
		if (sockets[i].inode && inode_of(sockets[i].fd) == sockets[i].inode)
			close(sockets[i].fd);
		sockets[i].inode = 0;
	}
	count = 0;
	errno = before;
}

/* The library calls it from one thread at a time. */
int close_in_children(void)
{
	static int set;
	int status = set ? 0 : pthread_atfork(NULL, NULL, close_all);

	set = !status;
	return status;
}
