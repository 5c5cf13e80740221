/* Many threads, and small ones. */
#include <limits.h>
#include <pthread.h>
#include <time.h>
#include "misuse.h"

#define THREADS 8

static struct ibv_context *shared;
static time_t until;

static void *use(void *argument)
{
	(void)argument;
	while (time(NULL) < until) {
		struct end pair[2];

		make_end(&pair[0], shared);
		make_end(&pair[1], shared);
		connect_end(&pair[0], address_of(&pair[1]));
		connect_end(&pair[1], address_of(&pair[0]));
		for (int i = 0; i < 20; i++)
			exchange(pair);
		CHECK(!post(&pair[0], address_of(&pair[1]), IBV_WR_RDMA_WRITE, SIZE)); /* and is not waited for */
		close_end(&pair[0]);
		close_end(&pair[1]);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];

	shared = open_device();
	until = time(NULL) + 5;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, use, NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(!ibv_close_device(shared));
}

/* One queue pair and one CQ for all. */
static struct end common[2];

static void *post_and_poll(void *argument)
{
	struct ibv_wc wc[4];

	(void)argument;
	while (time(NULL) < until) {
		(void)post(&common[0], address_of(&common[1]), IBV_WR_RDMA_WRITE, 256); /* ENOMEM at times */
		for (int i = 0, n = ibv_poll_cq(common[0].cq, 4, wc); i < n; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == 1);
	}
	return NULL;
}

static void threads_share(void)
{
	pthread_t thread[THREADS];

	make_pair(common);
	until = time(NULL) + 3;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, post_and_poll, NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	close_end(&common[0]);
	close_end(&common[1]);
}

static void *open_and_use(void *argument)
{
	shared = open_device();
	until = time(NULL) + 1;
	return use(argument);
}

/* The smallest stacks that musl's default and many runtimes have. */
static void small_stack(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 65536));
	CHECK(!pthread_create(&thread, &attr, open_and_use, NULL));
	pthread_join(thread, NULL);
	CHECK(!pthread_create(&thread, &attr, use, NULL));
	pthread_join(thread, NULL);
}

/* Threads that end leave nothing behind. */
static void many_threads(void)
{
	pthread_t thread;

	shared = open_device();
	until = 0;
	for (int i = 0; i < 2000; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(shared);

		CHECK(pd && !ibv_dealloc_pd(pd));
		CHECK(!pthread_create(&thread, NULL, use, NULL));
		pthread_join(thread, NULL);
	}
}

const struct group thread_cases[] = {
	{ "threads", threads }, { "threads-share", threads_share }, { "small-stack", small_stack }, { "many-threads", many_threads }, { 0 },
};
