/* Forks with a device open. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include "misuse.h"

static void do_nothing(void *argument)
{
	(void)argument;
}

static void child_exits(void)
{
	struct end pair[2];

	make_pair(pair);
	for (int i = 0; i < 50; i++) {
		CHECK(in_child(do_nothing, NULL) == 0);
		exchange(pair);
	}
	close_end(&pair[0]);
	close_end(&pair[1]);
}

static void execute(void *argument)
{
	execlp("sh", "sh", "-c", argument, NULL);
	exit(3);
}

/* Nothing of ours is left to a program that is executed: it has but the standard files. */
static void child_executes(void)
{
	struct end pair[2];

	make_pair(pair);
	CHECK(in_child(execute, "ls -l /proc/self/fd | grep -c 'socket:\\|memfd:\\|anon_inode' >/dev/null && exit 1; exit 0") == 0);
	CHECK(in_child(execute, "ibv_devinfo >/dev/null 2>&1 || test $? = 127") == 0);
	exchange(pair);
	close_end(&pair[0]);
	close_end(&pair[1]);
}

/* Whatever the program has open, it has no child that it has not made. */
static void no_children(void)
{
	struct end pair[2];

	make_pair(pair);
	exchange(pair);
	CHECK(wait(NULL) < 0 && errno == ECHILD);
	close_end(&pair[0]);
	close_end(&pair[1]);
	CHECK(!ibv_close_device(pair[0].context));
	CHECK(wait(NULL) < 0 && errno == ECHILD);
}

/* All that a child may call of what it inherited, where the engine is in its parent's process. Its standard error is counted by who has made it. */
static void use_inherited(void *argument)
{
	struct end *pair = argument;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_port_attr port;
	struct ibv_wc wc;

	CHECK(ibv_post_send(pair->qp, &wr, &bad) == EIO && bad == &wr);
	CHECK(post_receive(pair, 8) == EIO);
	CHECK(ibv_poll_cq(pair->cq, 1, &wc) < 0);
	CHECK(ibv_req_notify_cq(pair->cq, 0) == EIO);
	CHECK(ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE) == EIO);
	CHECK(ibv_query_qp(pair->qp, &attr, IBV_QP_STATE, &init) == EIO);
	CHECK(ibv_query_port(pair->context, 1, &port) == EIO);
	CHECK(!ibv_alloc_pd(pair->context) && errno == EIO);
	CHECK(!ibv_create_cq(pair->context, 1, NULL, NULL, 0) && errno == EIO);
	CHECK(!ibv_create_comp_channel(pair->context) && errno == EIO);
	CHECK(!ibv_reg_mr(pair->pd, pair->memory, SIZE, 0) && errno == EIO);
	CHECK(ibv_destroy_qp(pair->qp) == EIO);
	CHECK(ibv_dereg_mr(pair->mr) == EIO);
	CHECK(ibv_destroy_cq(pair->cq) == EIO);
	CHECK(ibv_dealloc_pd(pair->pd) == EIO);
	CHECK(ibv_close_device(pair->context) && errno == EIO);
}

/* Where the engine is apart a child uses what it inherited, with its parent's memory in the regions that it has from
 * that, and its own in others. */
static void go_on_with_inherited(void *argument)
{
	struct end *pair = argument;
	struct ibv_mr *inherited = pair->mr;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!post_receive(&pair[1], 64));
	CHECK(!post(pair, address_of(&pair[1]), IBV_WR_SEND, 64));
	CHECK_STATUS(await_completion(pair[1].cq), IBV_WC_SUCCESS);
	CHECK_STATUS(await_completion(pair->cq), IBV_WC_SUCCESS);
	CHECK(!ibv_query_qp(pair->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
	CHECK(pair->mr = ibv_reg_mr(pair->pd, pair->memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	strcpy(pair->memory, "the child's");
	CHECK(!post(pair, address_of(&pair[1]), IBV_WR_RDMA_WRITE, 64));
	CHECK_STATUS(await_completion(pair->cq), IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(pair->mr));
	pair->mr = inherited;
}

static void child_goes_on(struct end pair[2])
{
	memset(pair[0].memory, 'p', 64);
	CHECK(in_child(go_on_with_inherited, pair) == 0);
	CHECK(!strcmp(pair[1].memory, "the child's") && pair[1].memory[63] == 'p');
	exchange(pair);
}

/* It is told so once. */
static void child_uses_inherited(void)
{
	char said[4096] = "", *line;
	struct end pair[2];
	int ends[2], kept = dup(2), status;
	ssize_t n;

	make_pair(pair);
	if (engine_is_apart()) {
		child_goes_on(pair);
		return;
	}
	CHECK(!pipe(ends) && kept >= 0 && dup2(ends[1], 2) == 2);
	status = in_child(use_inherited, pair);
	dup2(kept, 2);
	close(ends[1]);
	n = read(ends[0], said, sizeof(said) - 1);
	if (status)
		fputs(said, stderr);
	CHECK(!status);
	CHECK(n > 0 && strstr(said, "before the fork") && (line = strchr(said, '\n')) && !line[1]);
	exchange(pair);
	close_end(&pair[0]);
	close_end(&pair[1]);
}

static void open_anew(void *deeper)
{
	struct end pair[2];

	make_pair(pair);
	exchange(pair);
	if (deeper)
		CHECK(in_child(open_anew, NULL) == 0);
	exchange(pair);
	close_end(&pair[0]);
	close_end(&pair[1]);
	CHECK(!ibv_close_device(pair[0].context));
}

static void child_opens_anew(void)
{
	struct end pair[2];

	make_pair(pair);
	for (int i = 0; i < 3; i++) {
		CHECK(in_child(open_anew, "again") == 0);
		exchange(pair);
	}
	close_end(&pair[0]);
	close_end(&pair[1]);
}

/* Sockets that are bound to ports or connected to the adapter's owner; not the pairs that events come by. */
static int count_sockets(void)
{
	int found = 0;

	for (int fd = 3; fd < 1024; fd++) {
		int domain, type;
		socklen_t size = sizeof(int);

		if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size))
			found += domain == AF_INET || domain == AF_INET6 || type == SOCK_STREAM;
	}
	return found;
}

static void expect_no_sockets(void *argument)
{
	(void)argument;
	CHECK(count_sockets() == 0);
}

/* A child that lives on keeps nothing of its parent's open, and closes nothing that is not. */
static void child_keeps_nothing(void)
{
	struct end pair[2];
	int own;

	make_pair(pair);
	exchange(pair);
	CHECK(engine_is_apart() ? count_sockets() == 0 : count_sockets() > 2);
	CHECK(in_child(expect_no_sockets, NULL) == 0);
	exchange(pair);
	CHECK(!ibv_close_device(pair[0].context));
	own = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(own >= 0 && in_child(expect_no_sockets, NULL) != 0);
}

/* Children that are killed in the middle of calls leave answers to nobody else. */
static void child_killed_in_call(void)
{
	struct end pair[2];

	make_pair(pair);
	if (!engine_is_apart())
		return;
	for (int i = 0; i < 100; i++) {
		const struct timespec life = { .tv_nsec = i % 50 * 40000 };
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		struct ibv_port_attr port;
		pid_t child = fork();

		CHECK(child >= 0);
		while (!child)
			ibv_query_port(pair->context, 1, &port);
		nanosleep(&life, NULL);
		CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
		CHECK(!ibv_query_qp(pair->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS && init.qp_type == IBV_QPT_RC);
		CHECK(ibv_query_port(pair->context, 7, &port));
	}
	exchange(pair);
}

/* The parent dies, and leaves a child behind: the parent's part of the adapter is given back nevertheless. */
static void parent_dies_first(void)
{
	int alive[2], told[2];
	char byte;

	if (engine_is_apart())
		return; /* the child goes on with what its parent had */
	CHECK(!pipe(alive) && !pipe(told));
	for (int i = 0; i < 70; i++) { /* more than may share an adapter */
		pid_t parent = fork();

		CHECK(parent >= 0);
		if (!parent) {
			struct end pair[2];

			make_pair(pair);
			exchange(pair);
			if (!fork()) {
				close(alive[1]);
				(void)!write(told[1], "x", 1);
				(void)!read(alive[0], &byte, 1); /* until the test ends */
				_exit(0);
			}
			_exit(0);
		}
		CHECK(waitpid(parent, NULL, 0) == parent);
		CHECK(read(told[0], &byte, 1) == 1);
	}
}

const struct group fork_cases[] = {
	{ "no-children", no_children },		      { "child-exits", child_exits },		      { "child-executes", child_executes },
	{ "child-uses-inherited", child_uses_inherited }, { "child-opens-anew", child_opens_anew },
	{ "child-keeps-nothing", child_keeps_nothing }, { "parent-dies-first", parent_dies_first },
	{ "child-killed-in-call", child_killed_in_call },
	{ 0 },
};
