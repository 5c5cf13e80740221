/* Events that are read late, by many, or never. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include "misuse.h"

/* A queue pair that is in error completes what is posted at once. */
static struct ibv_qp *make_error(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .sq_sig_all = 1, .cap = { 128, 4, 1, 1, 0 } };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp && !ibv_modify_qp(qp, &error, IBV_QP_STATE));
	return qp;
}

static void post_flushed(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void set_nonblocking(int fd)
{
	CHECK(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

#define MANY 2000

/* However many events wait to be read, none is lost. */
static void many_events(void)
{
	struct ibv_context *context = open_device();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	static struct ibv_cq *cqs[MANY];
	static struct ibv_qp *qps[MANY];
	static bool told[MANY];
	int found = 0;

	CHECK(channel && pd);
	for (intptr_t i = 0; i < MANY; i++) {
		CHECK(cqs[i] = ibv_create_cq(context, 4, (void *)i, channel, 0));
		CHECK(!ibv_req_notify_cq(cqs[i], 0));
		qps[i] = make_error(pd, cqs[i]);
		post_flushed(qps[i]);
	}
	/* Some are not there any more when their turn comes. */
	for (int i = MANY - 100; i < MANY; i++)
		CHECK(!ibv_destroy_qp(qps[i]) && !ibv_destroy_cq(cqs[i]));
	for (; found < MANY - 100; found++) {
		struct pollfd readable = { channel->fd, POLLIN, 0 };
		struct ibv_cq *cq;
		void *which;

		CHECK(poll(&readable, 1, 10000) == 1);
		CHECK(!ibv_get_cq_event(channel, &cq, &which));
		CHECK((intptr_t)which < MANY - 100 && cq == cqs[(intptr_t)which] && !told[(intptr_t)which]);
		told[(intptr_t)which] = true;
		ibv_ack_cq_events(cq, 1);
	}
	for (int i = 0; i < MANY - 100; i++)
		CHECK(!ibv_destroy_qp(qps[i]) && !ibv_destroy_cq(cqs[i]));
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* What is gone is not told of, and what was told of does not go before it is acknowledged (ibv_destroy_cq(3)): until then it
 * may be used. */
static void *acknowledge_later(void *cq)
{
	struct ibv_wc wc;

	for (double until = now() + 0.05; now() < until;) {
		(void)ibv_poll_cq(cq, 1, &wc);
		(void)ibv_req_notify_cq(cq, 0);
	}
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void *acknowledge_qp_later(void *argument)
{
	struct ibv_async_event *event = argument;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr receive = { 0 }, *bad_receive;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int posted = 0;

	for (double until = now() + 0.05; now() < until; posted++) {
		(void)ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
		(void)ibv_post_send(qp, &send, &bad);
		CHECK(ibv_post_recv(qp, &receive, &bad_receive));
	}
	CHECK(posted && ibv_post_send(qp, &send, &bad));
	ibv_ack_async_event(event);
	return NULL;
}

static void unacknowledged_qp(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_cq *cq = ibv_create_cq(context, 400, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = { 128, 0, 1, 0, 0 } };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_async_event event;
	pthread_t thread;
	double before;

	CHECK(srq && cq && qp && !ibv_modify_qp(qp, &error, IBV_QP_STATE));
	CHECK(!ibv_get_async_event(context, &event));
	CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp);
	before = now();
	CHECK(!pthread_create(&thread, NULL, acknowledge_qp_later, &event));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(now() - before >= 0.04);
	pthread_join(thread, NULL);
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

static void unacknowledged(void)
{
	struct ibv_context *context = open_device();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *got;
	struct ibv_qp *qp = make_error(pd, cq);
	pthread_t thread;
	void *argument;
	double before;

	CHECK(!ibv_req_notify_cq(cq, 0));
	post_flushed(qp);
	CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == cq);
	CHECK(!ibv_req_notify_cq(cq, 0));
	post_flushed(qp); /* a second event, which nobody reads */
	CHECK(!ibv_destroy_qp(qp));
	before = now();
	CHECK(!pthread_create(&thread, NULL, acknowledge_later, cq));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(now() - before >= 0.04);
	pthread_join(thread, NULL);
	set_nonblocking(channel->fd);
	CHECK(ibv_get_cq_event(channel, &got, &argument) && errno == EAGAIN);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* A CQ that overruns is told of, and its queue pairs are in error. */
static void overrun(void)
{
	struct ibv_async_event event;
	struct ibv_cq *small;
	struct end pair[2];
	struct ibv_qp *qp;

	make_pair(pair);
	CHECK(small = ibv_create_cq(pair[0].context, 1, NULL, NULL, 0));
	qp = make_error(pair[0].pd, small);
	for (int i = 0; i < 100; i++)
		post_flushed(qp);
	CHECK(!ibv_get_async_event(pair[0].context, &event));
	CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == small);
	ibv_ack_async_event(&event);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(small));
	exchange(pair);
	close_end(&pair[0]);
	close_end(&pair[1]);
	CHECK(!ibv_close_device(pair[0].context));
}

static struct ibv_comp_channel *channel_of_all;
static int handled, all_done; /* atomic */

/* Takes events until there will be none, as servers with several workers do. */
static void *work(void *argument)
{
	struct pollfd readable = { channel_of_all->fd, POLLIN, 0 };

	while (!__atomic_load_n(&all_done, __ATOMIC_ACQUIRE)) {
		struct ibv_wc wc[4];
		struct ibv_cq *cq;
		int n;

		if (poll(&readable, 1, 10) < 1 || ibv_get_cq_event(channel_of_all, &cq, &argument))
			continue;
		(void)ibv_req_notify_cq(cq, 0);
		while ((n = ibv_poll_cq(cq, 4, wc)) > 0) /* an error when the CQ is being destroyed */
			__atomic_fetch_add(&handled, n, __ATOMIC_RELAXED);
		ibv_ack_cq_events(cq, 1);
	}
	return NULL;
}

static void workers(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	time_t until = time(NULL) + 3;
	pthread_t threads[4];
	int posted = 0;

	CHECK(channel_of_all = ibv_create_comp_channel(context));
	set_nonblocking(channel_of_all->fd);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, NULL));
	while (time(NULL) < until) {
		struct ibv_cq *cq = ibv_create_cq(context, 100, NULL, channel_of_all, 0);
		time_t late = time(NULL) + 20;
		struct ibv_qp *qp;

		CHECK(cq && !ibv_req_notify_cq(cq, 0));
		qp = make_error(pd, cq);
		for (int i = 0; i < 50; i++, posted++)
			post_flushed(qp);
		while (__atomic_load_n(&handled, __ATOMIC_RELAXED) < posted)
			CHECK(time(NULL) < late);
		CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	}
	__atomic_store_n(&all_done, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK(!ibv_destroy_comp_channel(channel_of_all) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

const struct group event_cases[] = {
	{ "many-events", many_events }, { "unacknowledged", unacknowledged }, { "unacknowledged-qp", unacknowledged_qp }, { "overrun", overrun }, { "workers", workers }, { 0 },
};
