/* The process that has the engine: starting it, waking it, and what becomes of it in children of a fork.
 *
 * A program that forks with RDMA objects in hand goes on using them: they are the other process's, and
 * what is shared with it lies in memory that children have, too. The process ends when the last of these does: it
 * reads the end of the socket.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "remote_lib.h"

struct remote remote = { .socket = -1, .doorbell = -1 };

void ring_doorbell(void)
{
	uint64_t one = 1;

	(void)!write(remote.doorbell, &one, sizeof(one)); /* where it is full, it has been rung */
}

/* Runs in a child of a fork: async-signal-safe. */
void remote_forked(void)
{
	queues_forked();
	check_forked();
	if (remote.pid)
		prctl(PR_SET_PTRACER, remote.pid, 0, 0, 0);
}

/* What the children of start_process have, on the program's memory. */
struct starting {
	const char *path;
	int socket;
	char *stack; /* the end of the process's */
	pid_t pid;
	int error;
};

/* By numbers: what a program has in the place of dup2 (librspreload.so) would take note of descriptors in the program's
 * memory. */
static int run_process(void *argument)
{
	struct starting *starting = argument;
	char *const argv[] = { (char *)starting->path, NULL };
	char *const environment[] = { NULL };
	sigset_t none;

	sigemptyset(&none);
	if ((starting->socket != REMOTE_SOCKET && syscall(SYS_dup3, starting->socket, REMOTE_SOCKET, 0) < 0) ||
	    syscall(SYS_fcntl, REMOTE_SOCKET, F_SETFD, 0)) {
		starting->error = errno;
		_exit(1);
	}
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(starting->path, argv, environment);
	starting->error = errno;
	_exit(1);
}

/* Each runs until the one that it starts has executed its program, or ended (CLONE_VFORK). */
static int run_between(void *argument)
{
	struct starting *starting = argument;

	starting->pid = clone(run_process, starting->stack, CLONE_VM | CLONE_VFORK, starting);
	if (starting->pid < 0)
		starting->error = errno;
	_exit(0);
}

/* Starts the process, of which the program learns nothing: it is a child of one that has ended, or the program's
 * wait(2) would wait for it. That one is none that wait(2) tells of, nor SIGCHLD. */
static int start_process(const char *path, int socket)
{
	const size_t size = 64 << 10; /* of a stack */
	char *stacks = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	struct starting starting = { .path = path, .socket = socket };
	pid_t between;

	if (stacks == MAP_FAILED)
		return errno;
	starting.stack = stacks + size;
	/* With no signal in the flags. Signals are blocked: load.c. */
	between = clone(run_between, stacks + 2 * size, CLONE_VM | CLONE_VFORK, &starting);
	if (between < 0)
		starting.error = errno;
	else
		waitpid(between, NULL, __WCLONE);
	munmap(stacks, 2 * size);
	if (!starting.error)
		remote.pid = starting.pid;
	return starting.error;
}

/* Lets go of everything, so that it can be tried again. */
static void stop_remote(void)
{
	if (remote.socket >= 0)
		close(remote.socket);
	if (remote.doorbell >= 0)
		close(remote.doorbell);
	if (remote.posts)
		munmap(remote.posts, sizeof(*remote.posts));
	remote = (struct remote){ .socket = -1, .doorbell = -1 };
}

int start_remote(const char *path, const char *engine_path, const struct engine **engine, char *message, size_t size)
{
	int ends[2] = { -1, -1 }, memory = -1, status;

	remote.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	remote.posts = share_memory(sizeof(*remote.posts), &memory);
	status = remote.doorbell < 0 || !remote.posts || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? errno : 0;
	remote.socket = ends[0];
	if (!status)
		status = init_shared(&remote.posts->lock);
	if (!status)
		status = start_process(path, ends[1]);
	if (status)
		snprintf(message, size, "%s", strerror(status));
	close(ends[1]);
	if (!status) {
		prctl(PR_SET_PTRACER, remote.pid, 0, 0, 0); /* for process_vm_readv(2), where Yama asks for it */
		status = greet_remote(memory, engine_path, message, size);
	}
	close(memory);
	if (status)
		stop_remote();
	else
		*engine = &remote_engine;
	return status;
}
