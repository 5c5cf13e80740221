/* Limits: of the adapter, and of the process. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "misuse.h"

#define SHARES 63 /* of an adapter, beside the node's own */

/* As many processes as an adapter has shares for; the next gets ENOSPC, and its place when one has ended. */
static void many_processes(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int told[2], alive[2], opened = 0, refused = 0;
	struct ibv_context *context;
	pid_t last = 0, child;
	char byte;

	CHECK(!pipe(told) && !pipe(alive));
	for (int i = 0; i <= SHARES; i++) {
		child = fork();
		CHECK(child >= 0);
		if (!child) {
			close(alive[1]);
			/* The engine of the case before, in a process of its own, ends a moment after its program, and
			 * then its share is given back. */
			time_t late = time(NULL) + (i < SHARES ? 5 : 0);
			do
				context = ibv_open_device(list[0]);
			while (!context && errno == ENOSPC && time(NULL) < late);
			byte = context ? 'y' : errno == ENOSPC ? 'n' : '?';
			CHECK(write(told[1], &byte, 1) == 1);
			(void)!read(alive[0], &byte, 1);
			_exit(0);
		}
		CHECK(read(told[0], &byte, 1) == 1 && byte != '?');
		opened += byte == 'y';
		refused += byte == 'n';
		if (byte == 'y')
			last = child;
	}
	CHECK(opened == SHARES && refused == 1);
	CHECK(!ibv_open_device(list[0]) && errno == ENOSPC);
	kill(last, 9);
	CHECK(waitpid(last, NULL, 0) == last);
	for (time_t late = time(NULL) + 10; !(context = ibv_open_device(list[0]));)
		CHECK(errno == ENOSPC && time(NULL) < late);
	CHECK(!ibv_close_device(context));
	close(alive[1]);
	while (wait(NULL) > 0)
		;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

#define MANY 10000

/* 5,000 pairs, each of which carries a message. */
static void many_queue_pairs(void)
{
	struct ibv_context *context = open_device();
	struct end *ends = calloc(MANY, sizeof(*ends));
	long before = resident();
	double start = now();

	for (int i = 0; i < MANY; i++)
		make_end(&ends[i], context);
	printf("%d queue pairs made in %.2f s, ", MANY, now() - start);
	start = now();
	for (int i = 0; i < MANY; i += 2) {
		connect_end(&ends[i], address_of(&ends[i + 1]));
		connect_end(&ends[i + 1], address_of(&ends[i]));
		exchange(&ends[i]);
	}
	printf("used in %.2f s, ", now() - start);
	printf("%ld bytes each, ", (resident() - before) / MANY);
	start = now();
	for (int i = 0; i < MANY; i++)
		close_end(&ends[i]);
	printf("destroyed in %.2f s\n", now() - start);
	CHECK(!ibv_close_device(context));
}

/* Whether errno says that something is lacking. An engine apart has the program's limit of memory, too, and where its
 * process ends for want of that, calls fail with EIO. */
static bool is_lacking(int what)
{
	return errno == EMFILE || errno == ENOMEM || (errno == EIO && what == RLIMIT_AS && engine_is_apart());
}

/* With little of something the device opens or says what is lacking; what is lacking later is told, too, when in each round
 * a channel, a CQ with so many entries and a PD are made. */
static void with_limit(int what, rlim_t most, int rounds, int entries)
{
	struct rlimit limit = { most, most };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(!setrlimit(what, &limit));
	context = ibv_open_device(list[0]);
	if (!context) {
		CHECK(is_lacking(what) || errno == EAGAIN || errno == ENODEV);
		_exit(0);
	}
	for (int i = 0; i < rounds; i++) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		struct ibv_cq *cq = ibv_create_cq(context, entries, NULL, channel, 0);
		struct ibv_pd *pd = ibv_alloc_pd(context);

		if (!channel || !cq || !pd) {
			CHECK(is_lacking(what));
			_exit(0);
		}
	}
}

static void limited_files(void *argument)
{
	with_limit(RLIMIT_NOFILE, *(int *)argument, 100, 100);
}

static void few_files(void)
{
	for (int files = 3; files < 64; files += 3)
		CHECK(in_child(limited_files, &files) == 0);
}

static void limited_memory(void *argument)
{
	with_limit(RLIMIT_AS, *(rlim_t *)argument, 200, 10000);
}

/* Finely about the 1.6 GiB that the engine takes in its first seconds. */
static void little_memory(void)
{
	for (rlim_t bytes = 16 << 20; bytes < (rlim_t)5 << 30; bytes += 77 << 20)
		CHECK(in_child(limited_memory, &bytes) == 0);
	for (rlim_t bytes = (rlim_t)1500 << 20; bytes < (rlim_t)1700 << 20; bytes += 1 << 20)
		CHECK(in_child(limited_memory, &bytes) == 0);
}

static void limited_threads(void *argument)
{
	with_limit(RLIMIT_NPROC, *(int *)argument, 20, 100); /* none of them has a thread of its own */
}

/* Root is not limited. */
static void few_threads(void)
{
	for (int threads = 1; threads < 24; threads++)
		CHECK(in_child(limited_threads, &threads) == 0);
}

const struct group limit_cases[] = {
	{ "many-processes", many_processes }, { "many-queue-pairs", many_queue_pairs }, { "few-files", few_files }, { "little-memory", little_memory }, { "few-threads", few_threads }, { 0 },
};
