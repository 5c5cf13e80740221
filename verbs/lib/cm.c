/* /dev/infiniband/rdma_cm, without the kernel: what librdmacm says to that device (rdma/rdma_user_cm.h).
 *
 * Opening it makes an event channel: a pair of connected sockets, of which the program has one end and the engine
 * announces events on the other. Writing a command passes it to the engine; GET_EVENT receives an announcement
 * first: so poll, O_NONBLOCK and signals are the kernel's. Other files are the kernel's altogether.
 */
#define _GNU_SOURCE
#include "cm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <rdma/rdma_user_cm.h>
#include "lib.h"

#define CM_DEVICE "/dev/infiniband/rdma_cm"

/* A character device's: that is all that librdmacm looks for. Misc devices have major number 10. */
#define CM_MODE (S_IFCHR | 0666)
#define CM_NUMBER makedev(10, 0)

struct cm_channel {
	int fd;	  /* the program's end */
	int ours; /* the engine's */
	const struct engine *engine;
	uint64_t handle;
	unsigned int generation;
	unsigned int users; /* calls under way, and 1 while it is open; guarded by naming */
};

/* Channels by the program's descriptor, guarded by naming. */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;
static struct cm_channel **channels;
static int channels_room;

void cm_forked(void)
{
	naming = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* An announcement, of what there is not: the engine, which is asked for it, is not there. */
void cm_failed(void)
{
	char announcement = 0;

	pthread_mutex_lock(&naming);
	for (int i = 0; i < channels_room; i++)
		if (channels[i])
			send(channels[i]->ours, &announcement, sizeof(announcement), MSG_DONTWAIT | MSG_NOSIGNAL);
	pthread_mutex_unlock(&naming);
}

/* The channel that a descriptor is, which stays until it is released, or NULL. */
static struct cm_channel *hold(int fd)
{
	struct cm_channel *channel;

	pthread_mutex_lock(&naming);
	channel = fd >= 0 && fd < channels_room ? channels[fd] : NULL;
	if (channel)
		channel->users++;
	pthread_mutex_unlock(&naming);
	return channel;
}

/* Our end stays open while a thread waits for an event of a channel that another one closes: the kernel leaves
 * it waiting, and librdmacm takes the end of file for an error. */
static void release(struct cm_channel *channel)
{
	bool last;

	pthread_mutex_lock(&naming);
	last = !--channel->users;
	pthread_mutex_unlock(&naming);
	if (last) {
		close(channel->ours);
		free(channel);
	}
}

/* Names a channel by its descriptor. */
static int name_channel(struct cm_channel *channel)
{
	struct cm_channel **grown;
	int room = channel->fd + 64, status = 0;

	pthread_mutex_lock(&naming);
	if (channel->fd >= channels_room) {
		grown = realloc(channels, room * sizeof(struct cm_channel *));
		if (grown) {
			memset(grown + channels_room, 0, (room - channels_room) * sizeof(struct cm_channel *));
			channels = grown;
			channels_room = room;
		} else {
			status = ENOMEM;
		}
	}
	if (!status)
		channels[channel->fd] = channel;
	pthread_mutex_unlock(&naming);
	return status;
}

/* Takes a descriptor's name away. The channel is the caller's to release. */
static struct cm_channel *forget(int fd)
{
	struct cm_channel *channel = NULL;

	pthread_mutex_lock(&naming);
	if (fd >= 0 && fd < channels_room) {
		channel = channels[fd];
		channels[fd] = NULL;
	}
	pthread_mutex_unlock(&naming);
	return channel;
}

/* Returns the program's descriptor, or -1 and errno. */
static int open_channel(int flags)
{
	const struct engine *engine = load_engine();
	struct cm_channel *channel = engine ? calloc(1, sizeof(*channel)) : NULL;
	int fd, status;

	if (!channel)
		return -1;
	if (open_event_pair(&channel->fd, &channel->ours)) {
		free(channel);
		return -1;
	}
	fd = channel->fd;
	channel->engine = engine;
	channel->generation = generation;
	channel->users = 1;
	status = CALL_ENGINE(engine, open_channel, channel->ours, fd, fd, &channel->handle);
	if (!status) {
		status = name_channel(channel);
		if (status)
			CALL_ENGINE(engine, close_channel, channel->handle);
	}
	if (!status && (flags & O_NONBLOCK) && fcntl(fd, F_SETFL, O_NONBLOCK))
		status = errno;
	if (!status)
		return fd;
	forget(fd);
	release(channel);
	close(fd);
	errno = status;
	return -1;
}

int cm_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list more;

	if (!strcmp(path, CM_DEVICE))
		return open_channel(flags);
	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(more, flags);
		mode = va_arg(more, mode_t);
		va_end(more);
	}
	return open(path, flags, mode);
}

int cm_close(int fd)
{
	struct cm_channel *channel = forget(fd);

	if (channel) {
		if (channel->generation == generation)
			CALL_ENGINE(channel->engine, close_channel, channel->handle);
		release(channel);
	}
	return close(fd);
}

/* Waits for an event as the descriptor has it, and has the engine write it. */
static long get_event(struct cm_channel *channel, const void *command, size_t length)
{
	long status;

	do {
		char announcement;
		ssize_t n = recv(channel->fd, &announcement, sizeof(announcement), 0);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		status = CALL_ENGINE(channel->engine, command, channel->handle, command, length);
	} while (status == -EAGAIN);
	return status;
}

/* Whether the descriptor was closed while a call used the channel. */
static bool is_closed(struct cm_channel *channel)
{
	bool closed;

	pthread_mutex_lock(&naming);
	closed = channel->fd >= channels_room || channels[channel->fd] != channel;
	pthread_mutex_unlock(&naming);
	return closed;
}

/* Returns the length of the command, or -errno. */
static long run(struct cm_channel *channel, const void *command, size_t length)
{
	struct rdma_ucm_cmd_hdr header;

	if (channel->generation != generation)
		return -refuse_inherited();
	if (length < sizeof(header))
		return -EINVAL;
	memcpy(&header, command, sizeof(header));
	if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT)
		return get_event(channel, command, length);
	return CALL_ENGINE(channel->engine, command, channel->handle, command, length);
}

ssize_t cm_write(int fd, const void *command, size_t length)
{
	struct cm_channel *channel = hold(fd);
	long n;

	if (!channel)
		return write(fd, command, length);
	n = run(channel, command, length);
	if (n < 0 && is_closed(channel))
		n = -EBADF; /* not what the engine says of a channel that it has no more */
	release(channel);
	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

/* By its number: libc's fstat of 2.33 would keep the library from older ones. */
int cm_fstat(int fd, struct stat *st)
{
	struct cm_channel *channel = hold(fd);

	if (!channel)
		return syscall(SYS_fstat, fd, st);
	release(channel);
	memset(st, 0, sizeof(*st));
	st->st_mode = CM_MODE;
	st->st_rdev = CM_NUMBER;
	return 0;
}

int cm_fxstat(int version, int fd, struct stat *st)
{
	(void)version;
	return cm_fstat(fd, st);
}

/* Netlink's RDMA family knows no such device: librdmacm then reads /sys. */
int cm_nl_connect(void *socket, int protocol)
{
	(void)socket;
	(void)protocol;
	return -1;
}
