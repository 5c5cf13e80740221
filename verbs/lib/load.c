/* Loading the engine, and what a fork does to it.
 *
 * The engine is loaded by the first ibv_open_device, not with the library and not by listing devices: programs
 * list, fork and open then (qperf, daemons, launchers), and a forked copy of a Go program is dead. All signals
 * are blocked meanwhile, so that the threads of the engine inherit that.
 *
 * In a child of a fork the engine is a corpse: its threads are not there. A child that opens a device gets a
 * fresh instance, which takes the loader to believe that it is another file. What the child inherited stays the
 * parent's, and using it fails with EIO. A handler of fork only counts; it runs where nothing else may.
 *
 * With NDKLAB_RNIC=process the engine is in a process of its own (remote.c), which serves children as well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "glibc.h"
#include "lib.h"
#include "remote_lib.h"
#include "room.h"

BIND_FIRST(dladdr);
BIND_FIRST(dlerror);
BIND_FIRST(dlopen);
BIND_FIRST(dlsym);

#define ENGINE_LIBRARY "libndklab-rnic.so"
#define ENGINE_PROCESS "ndklab-rnic"
#define ENGINE_ENTRY "ndklab_engine"

/* Where the library of the engine is when it is not beside this one. */
#define ENGINE_DIRECTORY "/dev/infiniband"

unsigned int generation;
sigset_t engine_blocks;

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* Held while the engine's process is started, which a fork in another thread waits for: a child would keep the engine's end
 * of the socket open, so that the program would not see the engine end, or its own without knowing. It is not loading:
 * mapping the engine's library calls pthread_atfork, which waits for handlers of fork where glibc is older than 2.36. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* All of these are guarded by loading; elsewhere, which a fork reads, by starting, too. */
static const struct engine *loaded;
static const struct engine *(*entry)(uint32_t, char *, uint64_t); /* of the library, once it is mapped */
static bool atfork_set;
static bool elsewhere; /* the engine is in a process of its own, which a fork leaves alone */

/* pthread_atfork's handlers: before, and after in the parent and in the child, which has one thread. */
static void about_to_fork(void)
{
	pthread_mutex_lock(&starting);
}

static void has_forked(void)
{
	pthread_mutex_unlock(&starting);
}

static void forked(void)
{
	starting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	loading = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	device_forked();
	cm_forked();
	if (elsewhere) {
		remote_forked();
		return;
	}
	generation++;
	loaded = NULL;
	entry = NULL;
}

int refuse_inherited(void)
{
	static unsigned int said; /* atomic: the generation that has been told */

	if (__atomic_exchange_n(&said, generation, __ATOMIC_RELAXED) != generation)
		fprintf(stderr, "ndklab: process %d uses an RDMA device that its parent opened before the fork: "
			"open it in the child, or set NDKLAB_RNIC=process\n", (int)getpid());
	return EIO;
}

void wait_before_retry(unsigned int retries)
{
	/* 20 us at first, 1.28 ms at last */
	struct timespec pause = { .tv_nsec = 20000L << (retries < 6 ? retries : 6) };

	nanosleep(&pause, NULL);
}

/* The signals that a fault or the Go runtime raises reach handlers that it has installed. */
static void fill_engine_blocks(void)
{
	static const int open[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGURG };

	sigfillset(&engine_blocks);
	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
		sigdelset(&engine_blocks, open[i]);
}

/* Writes the path of the engine's library. */
static void find_engine(char path[PATH_MAX])
{
	const char *given = secure_getenv("NDKLAB_RNIC_LIBRARY");
	const char *slash;
	Dl_info here;

	if (given && *given) {
		snprintf(path, PATH_MAX, "%s", given);
		return;
	}
	if (dladdr((void *)&generation, &here) && (slash = strrchr(here.dli_fname, '/'))) {
		int n = snprintf(path, PATH_MAX, "%.*s/" ENGINE_LIBRARY, (int)(slash - here.dli_fname), here.dli_fname);

		if (n < PATH_MAX && !access(path, R_OK))
			return;
	}
	snprintf(path, PATH_MAX, "%s/%s", ENGINE_DIRECTORY, ENGINE_LIBRARY);
}

/* Replaces path by that of a copy. The loader tells files apart by name and inode, so that the descriptor
 * stays open for as long as the process lives: no later copy may have its name. */
static int copy_engine(char path[PATH_MAX])
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to;
	ssize_t n = 0;

	if (from < 0)
		return -1;
	to = memfd_create(ENGINE_LIBRARY, MFD_CLOEXEC);
	if (to < 0) {
		close(from);
		return -1;
	}
	while ((n = sendfile(to, from, NULL, 1 << 20)) > 0)
		;
	close(from);
	if (n < 0) {
		close(to);
		return -1;
	}
	snprintf(path, PATH_MAX, "/proc/self/fd/%d", to);
	return 0;
}

static void explain(const char *what, const char *why)
{
	fprintf(stderr, "ndklab: no RDMA device: %s: %s\n", what, why);
}

/* Maps the engine's library, in a child of a fork a copy. Returns 0 or an errno. */
static int map_engine(void)
{
	char path[PATH_MAX];
	int status = check_room();
	void *library;

	find_engine(path);
	if (!status && generation && copy_engine(path))
		status = errno;
	if (status) {
		explain(path, strerror(status));
		return status;
	}
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (library)
		entry = (__typeof__(entry))dlsym(library, ENGINE_ENTRY);
	if (entry)
		return 0;
	explain(path, dlerror());
	return ENODEV;
}

/* Returns 0 or an errno. */
static int start_engine(void)
{
	char message[256] = "it has another version";
	const struct engine *engine;
	int status = entry ? 0 : map_engine();

	if (status)
		return status;
	errno = ENODEV;
	engine = entry(ENGINE_VERSION, message, sizeof(message));
	if (engine && engine->version == ENGINE_VERSION && engine->size >= sizeof(*engine)) {
		loaded = engine;
		return 0;
	}
	status = engine ? ENODEV : errno;
	message[sizeof(message) - 1] = 0;
	explain(ENGINE_LIBRARY, message);
	return status;
}

/* The kernel's struct sched_attr, of its first size: sched_setattr(2), which older C libraries do not have. */
struct sched_attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period; /* ns */
};

/* Has this thread run for no longer than some 100 us at a time, as threads that it starts do: the kernel, from
 * Linux 6.12 on, then has them run at once when a packet arrives, also where the program spins on every
 * processor. Returns what it was before, for restore_slice. */
static struct sched_attributes shorten_slice(void)
{
	struct sched_attributes before = { 0 }, short_slice;

	if (syscall(SYS_sched_getattr, 0, &before, sizeof(before), 0) || before.policy != SCHED_OTHER) {
		before.size = 0;
		return before;
	}
	short_slice = before;
	short_slice.runtime = 100000;
	syscall(SYS_sched_setattr, 0, &short_slice, 0); /* without it, packets wait for longer at times */
	return before;
}

static void restore_slice(const struct sched_attributes *before)
{
	if (before->size)
		syscall(SYS_sched_setattr, 0, before, 0);
}

/* Whether the program is to have the engine in a process of its own. */
static bool wants_process(void)
{
	const char *where = secure_getenv("NDKLAB_RNIC");

	return where && !strcmp(where, "process");
}

bool is_apart(const struct engine *engine)
{
	return engine == &remote_engine;
}

/* Starts the process whose program is beside the engine's library. Returns 0 or an errno. */
static int start_beside(void)
{
	char path[PATH_MAX], engine_path[PATH_MAX], message[256] = "";
	const char *slash;
	int status;

	find_engine(engine_path);
	slash = strrchr(engine_path, '/');
	snprintf(path, sizeof(path), "%.*s" ENGINE_PROCESS, slash ? (int)(slash + 1 - engine_path) : 0, engine_path);
	pthread_mutex_lock(&starting);
	status = start_remote(path, engine_path, &loaded, message, sizeof(message));
	elsewhere = !status;
	pthread_mutex_unlock(&starting);
	if (status)
		explain(path, message);
	return status;
}

/* Returns 0 or an errno. */
static int load_now(void)
{
	struct sched_attributes slice;
	sigset_t all, before;
	int status = atfork_set ? 0 : pthread_atfork(about_to_fork, has_forked, forked);

	if (status)
		return status;
	atfork_set = true;
	fill_engine_blocks();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	slice = shorten_slice();
	status = wants_process() ? start_beside() : start_engine();
	restore_slice(&slice);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

const struct engine *load_engine(void)
{
	const struct engine *engine;
	int status;

	pthread_mutex_lock(&loading);
	status = loaded ? 0 : load_now();
	engine = loaded;
	pthread_mutex_unlock(&loading);
	if (!engine)
		errno = status;
	return engine;
}
