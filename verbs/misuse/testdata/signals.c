/* Signals in the middle of any call. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include "misuse.h"

static volatile sig_atomic_t handled;

static void count(int number)
{
	char stack[2048]; /* as a handler that formats something */

	memset(stack, number, sizeof(stack));
	handled += stack[17] == number;
}

static void storm(int flags)
{
	static char alternate[65536];
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
	struct sigaction action = { .sa_handler = count, .sa_flags = flags };
	struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { 0 };
	time_t end = time(NULL) + 4;
	struct end pair[2];
	int rounds = 0;

	if (flags & SA_ONSTACK)
		CHECK(!sigaltstack(&stack, NULL));
	CHECK(!sigaction(SIGALRM, &action, NULL));
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	for (; time(NULL) < end; rounds++) {
		make_pair(pair);
		for (int i = 0; i < 50; i++)
			exchange(pair);
		CHECK(!post(&pair[0], address_of(&pair[1]), IBV_WR_RDMA_READ, SIZE));
		CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
		close_end(&pair[0]);
		close_end(&pair[1]);
		CHECK(!ibv_close_device(pair[0].context));
	}
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	CHECK(handled > 100 && rounds > 0);
}

static void signals(void)
{
	storm(0);
}

static void signals_restart(void)
{
	storm(SA_RESTART);
}

static void signals_on_stack(void)
{
	storm(SA_ONSTACK);
}

static void signals_on_stack_restart(void)
{
	storm(SA_ONSTACK | SA_RESTART);
}

/* The engine sends none: SIGURG, by which the Go runtime preempts threads, would end the program's poll(2) with EINTR. */
static void signals_of_engine(void)
{
	struct sigaction action = { .sa_handler = count, .sa_flags = SA_ONSTACK };
	time_t end = time(NULL) + 4;
	struct end pair[2];

	make_pair(pair);
	CHECK(!sigaction(SIGURG, &action, NULL));
	while (time(NULL) < end) {
		exchange(pair);
		close_end(&pair[0]);
		close_end(&pair[1]);
		CHECK(!ibv_close_device(pair[0].context));
		make_pair(pair);
	}
	CHECK(!handled);
}

/* A wait for an event ends with EINTR, or goes on, as the handler was installed. */
static void interrupted_wait(void)
{
	struct sigaction action = { .sa_handler = count };
	struct ibv_context *context = open_device();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct itimerval soon = { { 0, 0 }, { 0, 20000 } };
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *argument;

	CHECK(channel && !sigaction(SIGALRM, &action, NULL));
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	CHECK(ibv_get_cq_event(channel, &cq, &argument) && errno == EINTR);
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	CHECK(ibv_get_async_event(context, &event) && errno == EINTR);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_close_device(context));
}

static void leave(int number)
{
	(void)number;
	exit(0);
}

static void leave_at_once(int number)
{
	(void)number;
	_exit(0);
}

static void exit_from(void (*handler)(int))
{
	struct itimerval soon = { { 0, 0 }, { 0, 100000 } };
	struct end pair[2];

	make_pair(pair);
	signal(SIGALRM, handler);
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	for (;;)
		exchange(pair);
}

static void exit_from_handler(void)
{
	exit_from(leave);
}

static void exit_at_once_from_handler(void)
{
	exit_from(leave_at_once);
}

const struct group signal_cases[] = {
	{ "signals", signals },
	{ "signals-restart", signals_restart },
	{ "signals-on-stack", signals_on_stack },
	{ "signals-on-stack-restart", signals_on_stack_restart },
	{ "signals-of-engine", signals_of_engine },
	{ "interrupted-wait", interrupted_wait },
	{ "exit-from-handler", exit_from_handler },
	{ "exit-at-once-from-handler", exit_at_once_from_handler },
	{ 0 },
};
