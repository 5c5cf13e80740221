/* The program's sockets for events, each of which may come several times, as one descriptor after another. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "rnic.h"

struct kept {
	int fd;
	ino_t inode;
	unsigned int users;
	struct kept *next;
};

static struct kept *all;

static struct kept *find(int fd)
{
	struct stat st;
	struct kept *kept = all;

	if (fstat(fd, &st))
		return NULL;
	while (kept && kept->inode != st.st_ino)
		kept = kept->next;
	return kept;
}

int keep_socket(int fd)
{
	struct kept *kept = find(fd);
	struct stat st;

	if (kept) {
		close(fd);
		kept->users++;
		return kept->fd;
	}
	kept = calloc(1, sizeof(*kept));
	if (!kept || fstat(fd, &st)) {
		free(kept);
		return fd; /* by itself */
	}
	*kept = (struct kept){ .fd = fd, .inode = st.st_ino, .users = 1, .next = all };
	all = kept;
	return fd;
}

int kept_socket(int fd)
{
	struct kept *kept = find(fd);

	return kept ? kept->fd : -1;
}

void drop_socket(int fd)
{
	for (struct kept **at = &all; *at; at = &(*at)->next) {
		struct kept *kept = *at;

		if (kept->fd != fd)
			continue;
		if (!--kept->users) {
			*at = kept->next;
			engine->hold_events(fd, 0); /* the next socket may have this descriptor */
			close(fd);
			free(kept);
		}
		return;
	}
	close(fd);
}
