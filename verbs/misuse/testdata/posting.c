/* Requests that cannot be posted, or that fail. */
#include "misuse.h"

/* Posting is refused before RTS, and the list is cut where it is refused (ibv_post_send(3)). */
static void post_in_wrong_state(void)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr receive = { .wr_id = 9 }, *bad_receive = NULL;
	struct ibv_send_wr wr[2] = { { .opcode = IBV_WR_SEND, .next = &wr[1] }, { .opcode = IBV_WR_SEND } }, *bad = NULL;
	struct end end;
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	make_end(&end, open_device());
	CHECK(ibv_post_send(end.qp, wr, &bad) == EINVAL && bad == wr);
	CHECK(!ibv_post_recv(end.qp, &receive, &bad_receive));
	CHECK(!ibv_modify_qp(end.qp, &error, IBV_QP_STATE));
	CHECK_STATUS(await_completion(end.cq), IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_post_send(end.qp, wr, &bad));
	CHECK_STATUS(await_completion(end.cq), IBV_WC_WR_FLUSH_ERR);
	CHECK_STATUS(await_completion(end.cq), IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_modify_qp(end.qp, &reset, IBV_QP_STATE));
	CHECK(ibv_post_recv(end.qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	close_end(&end);
}

static void refuse_atomics(struct end pair[2])
{
	struct ibv_sge sge = { (uintptr_t)pair[0].memory, 8, pair[0].mr->lkey };
	struct ibv_send_wr good = { .sg_list = &sge, .num_sge = 1 }, wrong, *bad;

	good.wr.atomic.remote_addr = (uintptr_t)pair[1].memory;
	good.wr.atomic.rkey = pair[1].mr->rkey;
	for (int i = 0; i < 4; i++) {
		good.opcode = i & 1 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		wrong = good;
		sge.length = i & 2 ? 7 : 8;
		if (!(i & 2))
			wrong.wr.atomic.remote_addr++;
		bad = NULL;
		CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
	}
	sge.length = 8;
	wrong = good;
	wrong.send_flags = IBV_SEND_INLINE;
	CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
	wrong.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
}

/* The 8 bytes of an atomic write may be in memory. */
static void atomic_write(void)
{
	struct ibv_sge sge = { .length = 8 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_WRITE, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	struct end pair[2];

	make_pair(pair);
	strcpy(pair[0].memory, "8 bytes");
	sge.addr = (uintptr_t)pair[0].memory;
	sge.lkey = pair[0].mr->lkey;
	wr.wr.rdma.remote_addr = (uintptr_t)pair[1].memory;
	wr.wr.rdma.rkey = pair[1].mr->rkey;
	CHECK(!ibv_post_send(pair[0].qp, &wr, &bad));
	CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
	CHECK(!strcmp(pair[1].memory, "8 bytes"));
	sge.length = 9;
	CHECK(ibv_post_send(pair[0].qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.wr.rdma.remote_addr++;
	sge.length = 8;
	CHECK(ibv_post_send(pair[0].qp, &wr, &bad) == EINVAL && bad == &wr);
	close_end(&pair[0]);
	close_end(&pair[1]);
}

/* What the queue pair was not made for is refused, and what is before it in the list is carried out. */
static void post_too_much(void)
{
	static char large[4096];
	struct ibv_sge five[5] = { 0 }, inline_sge = { (uintptr_t)large, sizeof(large), 0 };
	struct ibv_send_wr good, wrong = { .opcode = IBV_WR_SEND, .sg_list = five, .num_sge = 5 }, *bad = NULL;
	struct ibv_recv_wr receive = { .sg_list = five, .num_sge = 5 }, *bad_receive = NULL;
	struct end pair[2];
	int status;

	make_pair(pair);
	good = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .next = &wrong };
	good.wr.rdma.remote_addr = address_of(&pair[1]).memory;
	good.wr.rdma.rkey = address_of(&pair[1]).rkey;
	CHECK(ibv_post_send(pair[0].qp, &good, &bad) == EINVAL && bad == &wrong);
	CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
	for (int n = -1; n < 1 << 30; n = n < 0 ? 1 << 20 : 1 << 30) {
		wrong.num_sge = n;
		CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
		receive.num_sge = n;
		CHECK(ibv_post_recv(pair[0].qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	}
	receive.num_sge = 5;
	CHECK(ibv_post_recv(pair[0].qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	wrong = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &inline_sge, .num_sge = 1 };
	CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
	inline_sge.length = UINT32_MAX; /* more than there is */
	CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
	wrong = (struct ibv_send_wr){ .opcode = 77 };
	CHECK(ibv_post_send(pair[0].qp, &wrong, &bad) == EINVAL && bad == &wrong);
	refuse_atomics(pair);
	receive = (struct ibv_recv_wr){ 0 };
	for (int i = 0; !(status = ibv_post_recv(pair[1].qp, &receive, &bad_receive)); i++)
		CHECK(i < 1 << 16);
	CHECK(status == ENOMEM && bad_receive == &receive);
	CHECK(!ibv_post_send(pair[0].qp, NULL, &bad) && !ibv_post_recv(pair[0].qp, NULL, &bad_receive));
	close_end(&pair[0]);
	close_end(&pair[1]);
}

/* A key that grants nothing fails the request; the other end of a wrong R_Key is in error, too. */
static void wrong_keys(void)
{
	static const struct {
		int lkey, rkey, outside;
		enum ibv_wc_status status;
	} wrong[] = {
		{ .lkey = 1, .status = IBV_WC_LOC_PROT_ERR },
		{ .rkey = 1, .status = IBV_WC_REM_ACCESS_ERR },
		{ .outside = 1, .status = IBV_WC_REM_ACCESS_ERR },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		for (int read = 0; read < 2; read++) {
			struct end pair[2];
			struct address to;
			uint32_t lkey;

			make_pair(pair);
			to = address_of(&pair[1]);
			to.rkey ^= wrong[i].rkey ? 0x5a5a5a : 0;
			to.memory += wrong[i].outside ? SIZE - 8 : 0;
			lkey = pair[0].mr->lkey;
			pair[0].mr->lkey ^= wrong[i].lkey ? 0x5a5a5a : 0;
			CHECK(!post(&pair[0], to, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 16));
			CHECK_STATUS(await_completion(pair[0].cq), wrong[i].status);
			pair[0].mr->lkey = lkey;
			CHECK(!post(&pair[0], to, IBV_WR_SEND, 16));
			CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_WR_FLUSH_ERR);
			close_end(&pair[0]);
			close_end(&pair[1]);
		}
	}
}

/* The handles that the engine takes from structures of the program's. */
static void wrong_handles(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_ah ah = { .handle = 0xabcdef };
	struct ibv_mw mw = { .handle = 0xabcdef };
	struct end pair[2];
	struct ibv_qp *qp;

	make_pair(pair);
	wr.opcode = IBV_WR_BIND_MW;
	wr.bind_mw.mw = &mw;
	wr.bind_mw.bind_info.mr = pair[0].mr;
	CHECK(ibv_post_send(pair[0].qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.bind_mw.mw = NULL;
	CHECK(ibv_post_send(pair[0].qp, &wr, &bad) == EINVAL);

	attr.send_cq = attr.recv_cq = pair[0].cq;
	CHECK(qp = ibv_create_qp(pair[0].pd, &attr));
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	state.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE));
	state.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_SQ_PSN));
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND };
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.wr.ud.ah = &ah;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(!ibv_destroy_qp(qp));
	close_end(&pair[0]);
	close_end(&pair[1]);
}

/* Messages of no bytes pass; lengths that are more than there is do not. */
static void lengths(void)
{
	struct end pair[2];
	struct address to;
	struct ibv_mr *mr;

	make_pair(pair);
	to = address_of(&pair[1]);
	CHECK(!post(&pair[0], to, IBV_WR_RDMA_WRITE, 0));
	CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
	CHECK(!post_receive(&pair[1], 0));
	CHECK(!post(&pair[0], to, IBV_WR_SEND, 0));
	CHECK_STATUS(await_completion(pair[1].cq), IBV_WC_SUCCESS);
	CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
	mr = ibv_reg_mr(pair[0].pd, NULL, 0, 0);
	if (mr)
		CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_reg_mr(pair[0].pd, pair[0].memory, SIZE_MAX, 0));
	CHECK(!ibv_reg_mr(pair[0].pd, pair[0].memory, SIZE_MAX - (uintptr_t)pair[0].memory, 0));
	CHECK(!ibv_reg_mr(pair[0].pd, pair[0].memory, SIZE, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pair[0].pd, NULL, SIZE, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(pair[0].pd, (void *)4096, SIZE, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(pair[0].pd, pair[0].memory, (size_t)1 << 46, 0) && errno == EFAULT);
	CHECK(!ibv_create_cq(pair[0].context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(pair[0].context, INT32_MAX, NULL, NULL, 0) && errno == EINVAL);
	CHECK(ibv_resize_cq(pair[0].cq, INT32_MAX) == EINVAL);
	CHECK(ibv_poll_cq(pair[0].cq, 0, NULL) == 0);
	CHECK(ibv_poll_cq(pair[0].cq, -1, NULL) < 0);
	CHECK(!post(&pair[0], to, IBV_WR_RDMA_WRITE, UINT32_MAX) || errno);
	close_end(&pair[0]);
	close_end(&pair[1]);
}

const struct group posting_cases[] = {
	{ "post-in-wrong-state", post_in_wrong_state }, { "post-too-much", post_too_much }, { "wrong-keys", wrong_keys },
	{ "wrong-handles", wrong_handles },		{ "lengths", lengths },		    { "atomic-write", atomic_write },
	{ 0 },
};
