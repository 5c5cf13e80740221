/* The two functions with which programs read /sys for themselves. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib.h"
#include "public.h"

const char *ibv_get_sysfs_path(void)
{
	static char path[IBV_SYSFS_PATH_MAX]; /* every thread writes the same */
	const char *given = secure_getenv("SYSFS_PATH");

	if (!given || !*given || strlen(given) >= sizeof(path))
		return "/sys";
	strcpy(path, given);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = 0;
	return path;
}

/* The number of bytes read, without the newline at the end, or -1 and errno. */
int ibv_read_sysfs_file(const char *directory, const char *file, char *buffer, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", directory, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buffer, size);
	close(fd);
	if (n > 0 && buffer[n - 1] == '\n')
		buffer[--n] = 0;
	else if (n >= 0 && (size_t)n < size)
		buffer[n] = 0;
	return n;
}
