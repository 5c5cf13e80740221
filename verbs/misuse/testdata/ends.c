/* How programs end, and how libraries are loaded. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include "misuse.h"

static void exit_without_closing(void)
{
	struct end pair[2];

	make_pair(pair);
	exchange(pair);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post(&pair[0], address_of(&pair[1]), IBV_WR_RDMA_WRITE, SIZE));
	exit(0);
}

/* A peer that is killed is told of by the queue pair that waits for its answer. */
static void killed_peer(void)
{
	int to_child[2], to_parent[2], status;
	struct address theirs, ours;
	struct ibv_wc wc;
	struct end end;
	pid_t child;

	CHECK(!pipe(to_child) && !pipe(to_parent));
	child = fork();
	CHECK(child >= 0);
	make_end(&end, open_device());
	ours = address_of(&end);
	CHECK(write(child ? to_child[1] : to_parent[1], &ours, sizeof(ours)) == sizeof(ours));
	CHECK(read(child ? to_parent[0] : to_child[0], &theirs, sizeof(theirs)) == sizeof(theirs));
	connect_end(&end, theirs);
	if (!child) {
		CHECK(write(to_parent[1], "", 1) == 1);
		for (;;)
			pause();
	}
	CHECK(read(to_parent[0], &status, 1) == 1);
	CHECK(!post(&end, theirs, IBV_WR_RDMA_WRITE, SIZE));
	CHECK_STATUS(await_completion(end.cq), IBV_WC_SUCCESS);
	CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
	CHECK(!post(&end, theirs, IBV_WR_RDMA_WRITE, SIZE));
	wc = await_completion(end.cq);
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
	close_end(&end);
}

/* The library is not taken away from under its threads. */
static void dlopen_and_dlclose(void)
{
	for (int i = 0; i < 20; i++) {
		void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
		struct ibv_device **(*get)(int *);
		void (*release)(struct ibv_device **);
		struct ibv_context *(*open)(struct ibv_device *);
		int (*close)(struct ibv_context *);
		struct ibv_device **list;
		struct ibv_context *context;

		CHECK(library);
		get = (__typeof__(get))dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
		release = (__typeof__(release))dlvsym(library, "ibv_free_device_list", "IBVERBS_1.1");
		open = (__typeof__(open))dlvsym(library, "ibv_open_device", "IBVERBS_1.1");
		close = (__typeof__(close))dlvsym(library, "ibv_close_device", "IBVERBS_1.1");
		CHECK(get && release && open && close && (list = get(NULL)) && (context = open(list[0])));
		if (i & 1)
			CHECK(!close(context));
		release(list);
		CHECK(!dlclose(library));
		usleep(1000);
	}
}

/* Open and close again and again: nothing adds up. */
static void open_and_close(void)
{
	for (int i = 0; i < 2000; i++)
		CHECK(!ibv_close_device(open_device()));
}

const struct group end_cases[] = {
	{ "exit-without-closing", exit_without_closing }, { "killed-peer", killed_peer },
	{ "dlopen-and-dlclose", dlopen_and_dlclose },	  { "open-and-close", open_and_close },
	{ 0 },
};
