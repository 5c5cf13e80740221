/* A fork in one thread while another starts the engine's process: what the child keeps. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "stub.h"

static pthread_t forker;
static pid_t forker_thread, child; /* atomic: 0 before */
static ino_t engines_end;
static int alive[2];

static void *fork_now(void *unused)
{
	pid_t made;
	char byte;

	(void)unused;
	__atomic_store_n(&forker_thread, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	made = fork();
	if (!made) {
		close(alive[1]);
		(void)!read(alive[0], &byte, 1); /* until the parent ends */
		_exit(0);
	}
	__atomic_store_n(&child, made, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Whether a thread sleeps, in this case for what another holds. */
static bool sleeps(pid_t thread)
{
	char path[64], line[512] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "r");
	CHECK(file && fgets(line, sizeof(line), file));
	fclose(file);
	return strstr(line, ") S ");
}

/* In the place of the C library's, for libibverbs too: the first call returns once the other thread has forked, or waits
 * for this one. */
int socketpair(int domain, int type, int protocol, int ends[2])
{
	struct stat end;
	pid_t thread;

	if (syscall(SYS_socketpair, domain, type, protocol, ends))
		return -1;
	if (engines_end)
		return 0;
	CHECK(!fstat(ends[1], &end));
	engines_end = end.st_ino;
	CHECK(!pthread_create(&forker, NULL, fork_now, NULL));
	do {
		sched_yield();
		thread = __atomic_load_n(&forker_thread, __ATOMIC_SEQ_CST);
	} while (!thread || (!__atomic_load_n(&child, __ATOMIC_SEQ_CST) && !sleeps(thread)));
	return 0;
}

/* Whether a process has a socket open. */
static bool has_socket(pid_t process, ino_t number)
{
	char path[512], wanted[64], to[64];
	struct dirent *entry;
	bool found = false;
	DIR *folder;

	snprintf(wanted, sizeof(wanted), "socket:[%lu]", (unsigned long)number);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)process);
	folder = opendir(path);
	CHECK(folder);
	while ((entry = readdir(folder))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)process, entry->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0) {
			to[n] = 0;
			found = found || !strcmp(to, wanted);
		}
	}
	closedir(folder);
	return found;
}

int main(void)
{
	struct ibv_context *context;

	CHECK(!pipe(alive));
	CHECK(!setenv("NDKLAB_RNIC", "process", 1));
	context = open_one();
	CHECK(engines_end && !pthread_join(forker, NULL) && child > 0);
	CHECK(!has_socket(getpid(), engines_end));
	CHECK(!has_socket(child, engines_end));
	CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	CHECK(!ibv_close_device(context));
	return 0;
}
