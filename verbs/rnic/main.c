/* ndklab-rnic: the engine in a process of its own, for programs that fork with RDMA objects in hand, that sit in a
 * debugger, or have a Go runtime or a JVM of their own. The library starts it (verbs/lib/remote.c) and talks to it
 * (verbs/lib/remote.h). It calls the same engine by the same functions (verbs/lib/engine.h), which reads and writes
 * the program's memory by process_vm_readv(2) and process_vm_writev(2).
 *
 * It ends when the last process that has the library's end of the socket does.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "rnic.h"

/* Keeps no file of the program's open but the socket and stderr, and gets none of the signals that its terminal
 * sends. */
static int leave_program(void)
{
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		return -1;
	syscall(SYS_close_range, REMOTE_SOCKET + 1, ~0u, 0); /* from Linux 5.9 on; else they stay open */
	fcntl(REMOTE_SOCKET, F_SETFD, FD_CLOEXEC);
	return setsid() < 0 ? -1 : 0;
}

int main(void)
{
	if (leave_program()) {
		fprintf(stderr, "ndklab-rnic is started by libibverbs, for NDKLAB_RNIC=process\n");
		return 2;
	}
	for (;;) {
		struct pollfd ready[] = {
			{ .fd = REMOTE_SOCKET, .events = POLLIN },
			{ .fd = doorbell, .events = POLLIN },
			{ .fd = notices, .events = POLLIN },
		};

		if (poll(ready, 3, wait_time()) < 0)
			continue;
		take_posts();
		if (ready[0].revents && !serve_call())
			return 0;
		if (ready[2].revents)
			take_notices();
		fill_rings(ready[1].revents);
	}
}
