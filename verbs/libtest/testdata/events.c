/* Completion channels and asynchronous events: what is the kernel's for any descriptor, and who waits for whom. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "stub.h"

static bool is_readable(int fd)
{
	struct pollfd readable = { fd, POLLIN, 0 };

	return poll(&readable, 1, 0) == 1;
}

static void tell_completion(struct stub *stub, struct ibv_cq *cq)
{
	uint64_t cookie = (uintptr_t)cq;

	CHECK(send(stub->comp_fd, &cookie, sizeof(cookie), 0) == sizeof(cookie));
}

static void tell(struct stub *stub, enum ibv_event_type type, void *about)
{
	struct engine_async_event event = { .type = type, .port = about ? 0 : 1, .cookie = (uintptr_t)about };

	CHECK(send(stub->async_fd, &event, sizeof(event), 0) == sizeof(event));
}

static void ignore(int number)
{
	(void)number;
}

/* Whom a thread interrupts, twice, before that has what it waits for. */
struct waiting {
	pthread_t thread;
	struct stub *stub;
	struct ibv_cq *cq;
};

static void *interrupt(void *argument)
{
	struct waiting *waiting = argument;

	for (int i = 0; i < 2; i++) {
		usleep(20000);
		CHECK(!pthread_kill(waiting->thread, SIGALRM));
	}
	usleep(20000);
	tell_completion(waiting->stub, waiting->cq);
	return NULL;
}

/* Signals whose handlers ask for that do not end the waiting, as the engine's own do. */
static void check_restart(struct ibv_context *context, struct stub *stub)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0), *got;
	struct waiting waiting = { pthread_self(), stub, cq };
	struct sigaction action = { .sa_handler = ignore, .sa_flags = SA_RESTART };
	pthread_t thread;
	void *argument;

	CHECK(!sigaction(SIGALRM, &action, NULL) && !pthread_create(&thread, NULL, interrupt, &waiting));
	CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == cq);
	CHECK(!pthread_join(thread, NULL));
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
}

static void check_channel(struct ibv_context *context, struct stub *stub)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *first = ibv_create_cq(context, 8, (void *)1, channel, 0);
	struct ibv_cq *second = ibv_create_cq(context, 8, (void *)2, channel, 0), *got;
	struct itimerval soon = { { 0, 0 }, { 0, 20000 } };
	struct sigaction action = { .sa_handler = ignore };
	void *argument;

	CHECK(!is_readable(channel->fd));
	tell_completion(stub, first);
	tell_completion(stub, second);
	CHECK(is_readable(channel->fd));
	CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == first && argument == (void *)1);
	CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == second && argument == (void *)2);
	CHECK(!is_readable(channel->fd));
	ibv_ack_cq_events(first, 1);
	ibv_ack_cq_events(second, 1);
	CHECK(!sigaction(SIGALRM, &action, NULL) && !setitimer(ITIMER_REAL, &soon, NULL));
	errno = 0;
	CHECK(ibv_get_cq_event(channel, &got, &argument) == -1 && errno == EINTR);
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	errno = 0;
	CHECK(ibv_get_cq_event(channel, &got, &argument) == -1 && errno == EAGAIN);
	/* What is told of a queue that is gone is told nobody; the rest stays, in order. */
	tell_completion(stub, second);
	tell_completion(stub, first);
	tell_completion(stub, second);
	tell_completion(stub, first);
	CHECK(!ibv_destroy_cq(second));
	CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == first);
	CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == first);
	CHECK(ibv_get_cq_event(channel, &got, &argument) == -1);
	ibv_ack_cq_events(first, 2);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(!ibv_destroy_cq(first));
	CHECK(!ibv_destroy_comp_channel(channel));
}

static void *acknowledge(void *cq)
{
	usleep(30000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

/* ASan would see the queue used after it is freed. */
static void check_waiting(struct ibv_context *context, struct stub *stub)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0), *got;
	pthread_t thread;
	void *argument;

	tell_completion(stub, cq);
	CHECK(!ibv_get_cq_event(channel, &got, &argument));
	CHECK(!pthread_create(&thread, NULL, acknowledge, cq));
	CHECK(!ibv_destroy_cq(cq));
	pthread_join(thread, NULL);
	CHECK(!ibv_destroy_comp_channel(channel));
}

static void check_asynchronous(struct ibv_context *context, struct stub *stub)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_async_event event;

	tell(stub, IBV_EVENT_QP_ACCESS_ERR, qp);
	tell(stub, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	tell(stub, IBV_EVENT_CQ_ERR, cq);
	tell(stub, IBV_EVENT_PORT_ERR, NULL);
	tell(stub, IBV_EVENT_DEVICE_FATAL, NULL);
	CHECK(is_readable(context->async_fd));
	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == qp);
	ibv_ack_async_event(&event);
	CHECK(!ibv_get_async_event(context, &event) && event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(!ibv_get_async_event(context, &event) && event.element.cq == cq);
	ibv_ack_async_event(&event);
	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_PORT_ERR && event.element.port_num == 1);
	ibv_ack_async_event(&event);
	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	for (int i = 0; i < 100; i++)
		tell(stub, i & 1 ? IBV_EVENT_COMM_EST : IBV_EVENT_SQ_DRAINED, qp);
	CHECK(!ibv_destroy_qp(qp) && !is_readable(context->async_fd));
	tell(stub, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	CHECK(!ibv_destroy_srq(srq) && !is_readable(context->async_fd));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

/* A function of the engine that has to wait is called again until it is through, with signals handled in between. */
static void check_again(struct ibv_context *context, struct stub *stub)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), 0);
	unsigned int before = stub->calls;

	fail_next(stub, "dereg_mr", EAGAIN, 5);
	CHECK(!ibv_dereg_mr(mr) && stub->calls == before + 6);
	CHECK(!ibv_dealloc_pd(pd));
}

int main(void)
{
	struct ibv_context *context = open_one();
	struct stub *stub = find_stub();

	check_channel(context, stub);
	check_restart(context, stub);
	check_waiting(context, stub);
	check_asynchronous(context, stub);
	check_again(context, stub);
	CHECK(!ibv_close_device(context));
	CHECK(!stub->interruptible);
	return 0;
}
