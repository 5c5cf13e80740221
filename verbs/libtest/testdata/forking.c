/* A child of a fork, and a machine without a device. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>
#include "stub.h"

static int wait_for(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return status;
}

/* What is inherited is refused, and told once; what the child opens itself works, and its engine is another. */
static void run_child(struct ibv_context *inherited, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_context *own;
	struct ibv_wc wc;
	struct ibv_pd *made;

	CHECK(ibv_dealloc_pd(pd) == EIO);
	CHECK(inherited->ops.poll_cq(cq, 1, &wc) < 0);
	CHECK(inherited->ops.req_notify_cq(cq, 0) == EIO);
	CHECK(ibv_close_device(inherited) == -1 && errno == EIO);
	own = open_one();
	made = ibv_alloc_pd(own);
	CHECK(made && !ibv_dealloc_pd(made));
	CHECK(ibv_dealloc_pd(pd) == EIO); /* still */
	CHECK(!ibv_close_device(own));
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	pid_t child;

	CHECK(!setenv("STUB_ABSENT", "1", 1));
	errno = 0;
	CHECK(!ibv_open_device(list[0]) && errno == ENOSPC);
	CHECK(!unsetenv("STUB_ABSENT"));
	ibv_free_device_list(list);
	context = open_one();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	child = fork();
	if (!child) {
		run_child(context, pd, cq);
		child = fork(); /* once more */
		if (!child) {
			run_child(context, pd, cq);
			_exit(0);
		}
		_exit(wait_for(child) != 0);
	}
	CHECK(wait_for(child) == 0);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
