/* Threads that make and destroy, post and poll at once; and one that takes events while objects go. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include "stub.h"

#define THREADS 4
#define ROUNDS 200

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static int done; /* atomic */
static int comp_fd, async_fd; /* the engine's ends */

static void tell_of(struct ibv_cq *cq, struct ibv_qp *qp)
{
	struct engine_async_event event = { .type = IBV_EVENT_COMM_EST, .cookie = (uintptr_t)qp };
	uint64_t cookie = (uintptr_t)cq;

	CHECK(send(comp_fd, &cookie, sizeof(cookie), 0) == sizeof(cookie));
	CHECK(send(async_fd, &event, sizeof(event), 0) == sizeof(event));
}

static void *make(void *argument)
{
	(void)argument;
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0);
		struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
		struct ibv_qp *qp = ibv_create_qp(pd, &attr);
		char memory[64];
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), 0);

		CHECK(qp && mr && !context->ops.req_notify_cq(cq, 0));
		tell_of(cq, qp);
		CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	}
	return NULL;
}

static void *take(void *argument)
{
	struct pollfd readable[2] = { { channel->fd, POLLIN, 0 }, { context->async_fd, POLLIN, 0 } };
	struct ibv_async_event event;
	struct ibv_cq *cq;

	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
		if (poll(readable, 2, 10) < 1)
			continue;
		if (readable[0].revents && !ibv_get_cq_event(channel, &cq, &argument))
			ibv_ack_cq_events(cq, 1);
		if (readable[1].revents && !ibv_get_async_event(context, &event))
			ibv_ack_async_event(&event);
	}
	return NULL;
}

int main(void)
{
	pthread_t makers[THREADS], taker;
	struct stub *stub;
	struct ibv_cq *cq;

	context = open_one();
	stub = find_stub();
	CHECK(channel = ibv_create_comp_channel(context));
	CHECK(cq = ibv_create_cq(context, 8, NULL, channel, 0));
	comp_fd = stub->comp_fd;
	async_fd = stub->async_fd;
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK) && !fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	CHECK(!pthread_create(&taker, NULL, take, NULL));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&makers[i], NULL, make, NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(makers[i], NULL);
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	pthread_join(taker, NULL);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_close_device(context));
	return 0;
}
