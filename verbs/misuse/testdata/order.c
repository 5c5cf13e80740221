/* Objects that are destroyed in the wrong order, and programs that end in the middle. */
#include <sys/mman.h>
#include "misuse.h"

static void wrong_order(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_context *context = open_device();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_qp *qp;

	CHECK(channel && pd && cq && srq && mr && mw);
	attr.send_cq = attr.recv_cq = cq;
	attr.srq = srq;
	CHECK(qp = ibv_create_qp(pd, &attr));
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_dealloc_mw(mw));
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_close_device(context));
	CHECK(ibv_close_device(context));
}

/* Memory of a window that is bound stays registered. */
static void bound_window(void)
{
	struct ibv_mw_bind bind = { .wr_id = 3 };
	struct end pair[2];
	struct ibv_mw *mw;

	make_pair(pair);
	CHECK(mw = ibv_alloc_mw(pair[0].pd, IBV_MW_TYPE_1));
	bind.send_flags = IBV_SEND_SIGNALED;
	bind.bind_info = (struct ibv_mw_bind_info){ pair[0].mr, (uintptr_t)pair[0].memory, 64, IBV_ACCESS_REMOTE_WRITE };
	CHECK(!ibv_bind_mw(pair[0].qp, mw, &bind));
	CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(pair[0].mr) == EBUSY);
	CHECK(!ibv_dealloc_mw(mw));
	close_end(&pair[0]);
	close_end(&pair[1]);
}

/* What is left in a context goes with it; its memory is not touched any more. */
static void close_with_things_left(void)
{
	struct end left[2], pair[2];

	make_pair(left);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post(&left[0], address_of(&left[1]), IBV_WR_RDMA_WRITE, SIZE));
	CHECK(!ibv_close_device(left[0].context));
	munmap(left[0].memory, SIZE);
	munmap(left[1].memory, SIZE);
	for (int i = 0; i < 64; i++) {
		make_pair(pair);
		exchange(pair);
		CHECK(!ibv_close_device(pair[0].context));
	}
}

const struct group order_cases[] = {
	{ "wrong-order", wrong_order }, { "bound-window", bound_window }, { "close-with-things-left", close_with_things_left }, { 0 },
};
